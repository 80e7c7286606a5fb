// Screenshots of real runs for the documentation: node shots.js [FOLDER] [N] [PART…], by default all parts. The
// disputed run needs python with grpcio and grpcio-tools (QUEENS_PYTHON), since a lying client takes part.
import { join } from 'node:path';
import { Cluster, browser, visit } from './cluster.js';

const [folder = new URL('../../docs/img', import.meta.url).pathname, n = '20', ...chosen] = process.argv.slice(2);
const desktop = { viewport: { width: 1280, height: 800 } };
const phone = { viewport: { width: 390, height: 844 } };
const chrome = await browser();

async function open(url, options) {
  const page = await (await chrome.newContext(options)).newPage();
  await visit(page, url);
  return page;
}

// Waits for all parts of a run's page, and takes a screenshot.
async function shoot(url, name, options) {
  const page = await open(url, options);
  await page.waitForSelector('#chart-rate canvas');
  await page.locator('#map-where').filter({ hasText: /./ }).waitFor();
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: options === phone });
  return page;
}

// A run on which an honest worker and a lying client disagree, without a referee to decide.
async function disputed() {
  const cluster = await Cluster.start(['--n', '17', '--method', 'rows', '--recheck', 'all', '--referee', 'off']);
  try {
    await cluster.disagree(process.env.QUEENS_PYTHON ?? 'python3');
    const page = await open(await cluster.link(), desktop);
    await page.locator('#alert-list').filter({ hasText: /Conflicting counts/ }).waitFor({ timeout: 60_000 });
    await page.locator('#map-where').filter({ hasText: /./ }).waitFor();
    await page.screenshot({ path: join(folder, 'dashboard-disputed.png') });
  } finally { await cluster.stop(); }
}

// A visitor's page, and the contributors of a run that two visitors and a worker have counted.
async function visitors() {
  const cluster = await Cluster.start(['--n', '19', '--method', 'frames', '--task-cost', '5000', '--volunteers']);
  try {
    for (const name of ['ada', 'gauss']) {
      const page = await open(`${cluster.url}/count`, desktop);
      await page.locator('#name').fill(name);
      await page.locator('#start').click();
      await page.locator('#tasks').filter({ hasText: /[1-9]/ }).waitFor();
      await page.screenshot({ path: join(folder, 'count.png') });
    }
    cluster.worker('lab-a');
    await cluster.line(/N = 19: 4,968,057,848 solutions/);
    const page = await open(await cluster.link(), { viewport: { width: 1280, height: 400 } });
    await page.waitForSelector('.result');
    await page.goto(`${cluster.url}/runs/last/credits`);
    await page.screenshot({ path: join(folder, 'credits.png') });
  } finally { await cluster.stop(); }
}

// A run before, during and after its count.
async function dashboards() {
  const cluster = await Cluster.start(['--n', n, '--recheck', '0.2']);
  const empty = await Cluster.start([]);
  try {
    const none = await open(await empty.link(), desktop);
    await none.screenshot({ path: join(folder, 'dashboard-empty.png') });
    await empty.queensctl(['submit', '--n', '12', '--method', 'frames']);
    await none.goto(`${empty.url}/runs/last/tasks/9`);
    await none.screenshot({ path: join(folder, 'task.png'), fullPage: true });
    for (const name of ['lab-a', 'lab-b']) cluster.worker(name);
    const first = await open(await cluster.link(), desktop);
    // Far enough to show something, but not finished.
    await first.locator('[data-figure=percent]').filter({ hasText: /^[3-9]\d\./ }).waitFor({ timeout: 3_600_000 });
    const page = await shoot(await cluster.link(), 'dashboard-desktop', desktop);
    await page.locator('section:has(#workers)').screenshot({ path: join(folder, 'dashboard-workers.png') });
    await shoot(await cluster.link(), 'dashboard-dark', { ...desktop, colorScheme: 'dark' });
    await shoot(await cluster.link(), 'dashboard-phone', phone);
    await first.waitForSelector('.result', { timeout: 3_600_000 });
    await shoot(await cluster.link(), 'dashboard-finished', desktop);
  } finally {
    for (const each of [cluster, empty]) await each.stop();
  }
}

const parts = { dashboards, disputed, visitors };
try {
  for (const part of chosen.length ? chosen : Object.keys(parts)) await parts[part]();
} finally {
  await chrome.close();
}
