// Screenshots of a real run for the documentation: node shots.js FOLDER
import { join } from 'node:path';
import { House, browser } from './house.js';

const folder = process.argv[2] ?? new URL('../../docs/img', import.meta.url).pathname;
const house = await House.start(['--n', '20', '--task-cost', '1000000', '--recheck', '0.2']);
const chrome = await browser();
try {
  for (const name of ['lab-a', 'lab-b']) house.worker(name);
  const desktop = { viewport: { width: 1280, height: 1000 } };
  const first = await (await chrome.newContext(desktop)).newPage();
  await first.goto(house.url);
  // So far that there is something to see, and not to the end.
  await first.locator('[data-w=percent]').filter({ hasText: /^[4-9]\d\./ }).waitFor({ timeout: 600_000 });
  for (const [name, options] of [
    ['dashboard-desktop', desktop],
    ['dashboard-dark', { ...desktop, colorScheme: 'dark' }],
    ['dashboard-phone', { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 }],
  ]) {
    const page = await (await chrome.newContext(options)).newPage();
    await page.goto(house.url);
    await page.waitForSelector('#chart-speed canvas');
    await page.locator('#map-where').filter({ hasText: /./ }).waitFor();
    await page.screenshot({ path: join(folder, `${name}.png`) });
    if (name === 'dashboard-desktop') {
      await page.locator('section:has(#workers)').screenshot({ path: join(folder, 'dashboard-workers.png') });
    }
  }
} finally {
  await chrome.close();
  await house.stop();
}
