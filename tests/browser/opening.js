// Measures time and bytes of opening a run's page: node opening.js [URL]. Without an address a
// coordinator with a run of 466,495 tasks is started. For 1,000 machines give the address of
// cargo run --release --example bench -- many-workers 1000 60 100000 --http 127.0.0.1:7272
import { Cluster, browser } from './cluster.js';

const given = process.argv[2];
const cluster = given ? null : await Cluster.start(['--n', '21', '--method', 'rows', '--task-cost', '5000', '--insecure']);
const chrome = await browser();
try {
  for (let time = 0; time < 5; time++) {
    const page = await (await chrome.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
    let bytes = 0;
    page.on('response', (response) => {
      if (!response.url().endsWith('/events')) bytes += Number(response.headers()['content-length'] ?? 0);
    });
    await page.goto(given ?? cluster.url);
    await page.locator('#map-where').filter({ hasText: /./ }).waitFor();
    const [html, paint, map] = await page.evaluate(`[
      performance.getEntriesByType('navigation')[0].responseEnd,
      performance.getEntriesByName('first-contentful-paint')[0].startTime,
      performance.getEntriesByName('map-drawn')[0].startTime,
    ].map(Math.round)`);
    const text = (figure) => page.locator(`[data-figure=${figure}]`).first().textContent();
    console.log(`page after ${html} ms, painted after ${paint} ms, map after ${map} ms, ${bytes} bytes: ${await text('tasks')}, ${await text('machines')}`);
    await page.context().close();
  }
} finally {
  await chrome.close();
  await cluster?.stop();
}
