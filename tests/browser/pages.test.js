// The pages on a phone, by keyboard, in both themes, as a viewer and as an operator.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cluster, browser, firefoxPath, launchFirefox, patience, visit } from './cluster.js';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const phone = { width: 390, height: 844 };
let chrome;
before(async () => { chrome = await browser(); });
after(async () => { await chrome?.close(); });

// Opens a page; records its requests, errors and bytes.
async function open(url, options = {}, browser = chrome) {
  const context = await browser.newContext({ viewport: phone, ...options });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  page.requested = [];
  page.errors = [];
  page.bytes = 0;
  page.on('request', (request) => {
    page.requested.push(request.url());
    // The bytes are those of one page, not of the login before it.
    if (request.isNavigationRequest()) page.bytes = 0;
  });
  page.on('console', (message) => { if (message.type() === 'error') page.errors.push(message.text()); });
  page.on('pageerror', (error) => page.errors.push(String(error)));
  page.on('response', async (response) => {
    if (!response.url().endsWith('/events')) page.bytes += Number(response.headers()['content-length'] ?? 0);
  });
  await visit(page, url);
  return page;
}

// Waits for the text of an element, without a function in the page, which its policy forbids.
async function waitForText(page, where, what) {
  await page.locator(where).filter({ hasText: what }).first().waitFor({ state: 'attached' });
}

async function findings(page) {
  const found = await page.evaluate(`${axe}; axe.run(document)`);
  return found.violations
    .filter((finding) => ['serious', 'critical'].includes(finding.impact))
    .map((finding) => `${finding.id}: ${finding.nodes.map((node) => node.html).join(' ')}`);
}

test('a phone shows the key figures first, without external requests and in few bytes', async () => {
  const cluster = await Cluster.start(['--n', '16', '--task-cost', '100000']);
  try {
    const page = await open(await cluster.link());
    for (const where of ['[data-figure=board]', '#state', '[data-figure=percent]', '[data-figure=eta]', '#alert-list']) {
      const box = await page.locator(where).boundingBox();
      assert.ok(box && box.y + box.height <= phone.height, `${where} is on the first screen: ${JSON.stringify(box)}`);
    }
    const wide = await page.evaluate('document.documentElement.scrollWidth');
    assert.ok(wide <= phone.width, `nothing is wider than the phone: ${wide}`);
    await waitForText(page, '#map-where', /./);
    assert.deepEqual(page.requested.filter((url) => !url.startsWith(cluster.url)), [], 'external requests');
    assert.deepEqual(page.errors, []);
    assert.ok(page.bytes > 10_000 && page.bytes < 150_000, `${page.bytes} bytes`);
    const paint = await page.evaluate('performance.getEntriesByName("first-contentful-paint")[0]?.startTime');
    console.log(`# first paint after ${Math.round(paint)} ms, ${page.bytes} bytes`);
  } finally { await cluster.stop(); }
});

for (const colorScheme of ['light', 'dark']) {
  test(`no serious accessibility finding, ${colorScheme}`, async () => {
    const cluster = await Cluster.start(['--n', '14', '--task-cost', '100000']);
    try {
      cluster.worker('one');
      await cluster.line(/N = 14: 365,596 solutions/);
      const page = await open(await cluster.link(), { colorScheme });
      await page.waitForSelector('#workers tbody tr');
      assert.deepEqual(await findings(page), []);
      assert.equal(await page.locator('.result .number').first().textContent(), '365,596');
    } finally { await cluster.stop(); }
  });
}

test('a page follows its run to the end', async () => {
  const cluster = await Cluster.start(['--n', '15', '--task-cost', '200000']);
  try {
    const page = await open(await cluster.link());
    // A machine with a nearly full disk shows another alert next to this one.
    await waitForText(page, '#alert-list li', /^Stalled: no workers connected/);
    cluster.worker('one');
    await waitForText(page, '#state', /^complete$/);
    assert.equal(await page.locator('[data-figure=percent]').textContent(), '100.00 %');
    await waitForText(page, '.result .number', /^2,279,184$/);
    await waitForText(page, '#workers tbody td:nth-child(1)', /^one$/);
    assert.match(await page.locator('#workers tbody td:nth-child(5)').textContent(), /100\.00 %/);
    assert.deepEqual(page.errors, []);
  } finally { await cluster.stop(); }
});

test('the keyboard navigates the map down to one task', async () => {
  const cluster = await Cluster.start(['--n', '18', '--method', 'rows', '--task-cost', '1000']);
  try {
    const page = await open(await cluster.link());
    await page.getByRole('button', { name: 'Show in task order' }).click();
    await waitForText(page, '#map-where', /per cell$/);
    await page.focus('#map');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    const cellText = () => page.locator('#map-cell').textContent();
    assert.match(await cellText(), /^Tasks? 1|^Tasks? [\d,]+ to [\d,]+: pending/);
    // From cells of the whole run down to one task per cell, and into that task.
    await page.keyboard.press('Enter');
    await waitForText(page, '#map-where', /^Tasks [\d,]+ to [\d,]+$/);
    await waitForText(page, '#map-cell', /^Task [\d,]+: pending$/);
    await page.keyboard.press('Enter');
    await waitForText(page, '#map-cell', /^Task [\d,]+: pending · [\d,]+ units from [\d,]+/);
    // The answer about a task comes after another one was chosen.
    const late = page.waitForResponse(/\/tasks\/\d+$/);
    await page.route(/\/tasks\/\d+$/, async (route) => { await page.keyboard.press('ArrowRight'); await route.continue(); });
    await page.keyboard.press('Enter');
    await (await late).finished();
    await page.evaluate('fetch("/api/v1/runs").then((answer) => answer.text())');
    assert.match(await cellText(), /^Task [\d,]+: pending$/);
    await page.keyboard.press('Escape');
    await page.locator('#map-out:disabled').waitFor();
  } finally { await cluster.stop(); }
});

test('the map of frames shows A and C and zooms down to one task, also for N = 28', async () => {
  const cluster = await Cluster.start(['--n', '28']);
  try {
    const page = await open(await cluster.link(), { viewport: { width: 1280, height: 1000 } });
    await waitForText(page, '#map-where', /down: A, the columns of P; across: C, the columns of R/);
    const [drawn, asked, began] = await page.evaluate(`[
      performance.getEntriesByName('map-drawn')[0].startTime,
      performance.getEntriesByType('resource').find((entry) => entry.name.endsWith('/grid')).duration,
      performance.getEntriesByType('resource').find((entry) => entry.name.endsWith('/grid')).startTime,
    ].map(Math.round)`);
    console.log(`# the map of N = 28 is drawn ${drawn} ms after the request for the page and ${drawn - began} ms after that for the map, whose response took ${asked} ms`);
    // Several colors: pending units, and places without a unit.
    const colors = await page.evaluate(`(() => {
      const canvas = document.getElementById('map');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      const seen = new Set();
      for (let at = 0; at < pixels.length; at += 4) seen.add(pixels.slice(at, at + 4).join());
      return seen.size;
    })()`);
    assert.ok(colors > 2, `${colors} colors`);
    await page.focus('#map');
    await page.keyboard.press('ArrowRight');
    await waitForText(page, '#map-cell', /^m = 1 row \d+, column \d+: pending/);
    const cell = () => page.locator('#map-cell').textContent();
    for (let step = 0; step < 6 && !/^Task /.test(await cell()); step++) {
      const before = (await cell()).replace(/[()]/g, '.');
      await page.keyboard.press('Enter');
      await page.locator('#map-cell').filter({ hasNotText: new RegExp(`^${before}$`) }).waitFor({ state: 'attached' });
    }
    assert.match(await cell(), /^Task [\d,]+: pending · [\d,]+ units from [\d,]+/);
    await page.keyboard.press('Escape');
    await page.locator('#map-out:disabled').waitFor();
    assert.deepEqual(page.errors, []);
  } finally { await cluster.stop(); }
});

test('an operator pauses and resumes a run', async () => {
  const cluster = await Cluster.start(['--n', '16']);
  try {
    const page = await open(await cluster.link());
    await page.getByRole('button', { name: /^Pause run/ }).click();
    await waitForText(page, '#state', /^paused$/);
    await page.getByRole('button', { name: /^Resume run/ }).click();
    await waitForText(page, '#state', /^running$/);
  } finally { await cluster.stop(); }
});

test('an operator drains a worker, and readmits a liar that the referee found', async (t) => {
  const python = process.env.QUEENS_PYTHON;
  if (!python) return t.skip('NOT TESTED: QUEENS_PYTHON, a Python with grpcio and grpcio-tools, is not set');
  const cluster = await Cluster.start(['--n', '17', '--method', 'rows']);
  try {
    await cluster.disagree(python);
    await cluster.line(/N = 17: 95,815,104 solutions/);
    const page = await open(await cluster.link());
    await page.goto(`${cluster.url}/workers`);
    const press = async (name) => {
      await page.getByRole('button', { name }).first().click();
      await page.locator('#ask-yes').click();
    };
    await press('Readmit liar');
    await waitForText(page, '#command-result', /^Readmit liar: accepted/);
    await press('Drain honest');
    await waitForText(page, '#command-result', /^Drain honest: accepted/);
    await cluster.line(/stopped: .* completed/);
    assert.deepEqual(page.errors, []);
  } finally { await cluster.stop(); }
});

test('a page without a run switches to the first, offers the commands of its state, and follows the next', async () => {
  const cluster = await Cluster.start([]);
  try {
    const page = await open(await cluster.link());
    await waitForText(page, 'h1', /^No runs yet$/);
    assert.deepEqual(await findings(page), []);
    // The first machine comes first; its token can have a name.
    assert.equal(await page.locator('main section h2').first().textContent(), 'Add a machine');
    await page.fill('#join [name=name]', 'lab');
    await page.getByRole('button', { name: 'Create join command' }).click();
    await waitForText(page, '#join-line', /^QUEENS_JOIN=.* worker$/);
    assert.match(await cluster.queensctl(['token', 'list']), /\blab\b/);
    // The answer for the earlier input comes last.
    const [early, late] = ['9', '16'].map((n) => page.waitForResponse(`**/api/v1/cost?n=${n}&method=rows`));
    await page.route('**/api/v1/cost?n=16&method=rows', async (route) => { await early; await route.continue(); });
    await page.selectOption('#submit [name=method]', 'rows');
    await page.fill('#submit [name=n]', '9');
    await page.keyboard.press('Tab');
    await waitForText(page, '#submit-line', /^queensctl submit --n 9 --method rows$/);
    await (await late).finished();
    await waitForText(page, '#submit-cost', /^N = 9, method rows.*: .* of disk; no threads are connected$/);
    await page.getByRole('button', { name: 'Start run' }).click();
    await page.waitForSelector('#bar');
    // A second run of a board is a choice.
    await page.locator('#submit-h').click();
    await page.selectOption('#submit [name=method]', 'rows');
    await page.fill('#submit [name=n]', '9');
    await page.getByRole('button', { name: 'Start run' }).click();
    await waitForText(page, '#submitted', /^run .* already exists \(.*\): use it, or request a new run$/);
    assert.ok(await page.getByRole('button', { name: 'Start another run' }).isVisible());
    // The browser itself reports the refusal.
    assert.deepEqual(page.errors.splice(0), ['Failed to load resource: the server responded with a status of 409 (Conflict)']);
    const list = page.locator('.runs tbody tr');
    const offered = async () => (await page.locator('.commands button:visible').allTextContents()).join();
    assert.equal(await offered(), 'Pause,Cancel…');
    await page.getByRole('button', { name: /^Pause run/ }).press('Enter');
    await waitForText(page, '#state', /^paused$/);
    assert.equal(await offered(), 'Resume,Cancel…');
    await waitForText(page, '[data-figure=eta]', /^paused$/);
    // The keyboard focus is unchanged.
    await page.keyboard.press('Enter');
    await waitForText(page, '#state', /^running$/);
    cluster.worker('one');
    await page.waitForSelector('.result');
    assert.equal(await offered(), '');
    await cluster.queensctl(['submit', '--n', '22']);
    await waitForText(page, '[data-figure=board]', /^N = 22$/);
    assert.equal(await list.count(), 2);
    const runs = await open(`${cluster.url}/runs?text=verified`, { storageState: await page.context().storageState() });
    assert.match(await list.page().locator('.runs thead').textContent(), /^RunNMethodStateDoneStartedCountingResultVerification/);
    assert.match(await runs.locator('.runs tbody').textContent(), /352verified/);
    assert.equal(await runs.locator('.runs tbody tr').count(), 1);
    assert.deepEqual(await findings(runs), []);
    await runs.getByRole('searchbox', { name: 'Filter' }).fill('frames');
    assert.equal(await runs.locator('.runs tbody tr:visible').count(), 0);
    assert.deepEqual([...page.errors, ...runs.errors], []);
  } finally { await cluster.stop(); }
});

test('a page reconnects to a restarted coordinator, or asks for a login if its session is gone', async () => {
  for (const session of ['none', 'kept', 'gone']) {
    const asks = session === 'gone', logsIn = session !== 'none';
    const cluster = await Cluster.start(logsIn ? ['--n', '16'] : ['--n', '16', '--insecure']);
    try {
      const page = await open(logsIn ? await cluster.link() : cluster.url);
      await page.waitForSelector('#bar');
      assert.equal(await page.getByRole('button', { name: 'Log out' }).count(), logsIn ? 1 : 0);
      await cluster.kill();
      await waitForText(page, '#link', /reconnecting/);
      if (asks) await rm(join(cluster.dir, 'data', 'auth', 'sessions.json'));
      cluster.serve();
      if (asks) await page.waitForURL(/\/login$/);
      else await waitForText(page, '#link', /^$/);
    } finally { await cluster.stop(); }
  }
});

test('a token or a one-time link logs in, and a viewer cannot change anything', async () => {
  const cluster = await Cluster.start(['--n', '16']);
  try {
    const page = await open(cluster.url);
    assert.match(page.url(), /\/login$/);
    assert.deepEqual(await findings(page), []);
    await page.fill('input[name=token]', 'nonsense');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.waitForSelector('[role=alert]');
    const made = JSON.parse(await cluster.queensctl(
      ['token', 'create', '--role', 'viewer', '--name', 'screen', '--json']));
    await page.fill('input[name=token]', made.join);
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.waitForSelector('#bar');
    assert.equal(await page.getByRole('button', { name: /^Pause run/ }).count(), 0);
    const code = await page.evaluate('fetch("/api/v1/runs/last/pause", { method: "POST" }).then((answer) => answer.status)');
    assert.equal(code, 403);
    const link = await cluster.link();
    assert.match(link, /\/login\/[\w-]+$/);
    const other = await open(link);
    await other.waitForSelector('#bar');
    assert.equal(await other.getByRole('button', { name: 'Log out' }).count(), 1);
    assert.ok(await other.getByRole('button', { name: /^Pause run/ }).count() > 0, 'with the role of the caller that requested the link');
    await other.getByRole('button', { name: 'Create join command' }).click();
    await waitForText(other, '#join-line', /^QUEENS_JOIN=queens1-\S+ worker$/);
    const tokens = (await cluster.queensctl(['token', 'list', '--json'])).split('\n').map((line) => JSON.parse(line));
    const made30 = tokens.find(({ name }) => name.startsWith('page-'));
    assert.equal(Math.round((made30.expires_unix_ms - made30.created_unix_ms) / 86_400_000), 30);
    const third = await open(link);
    assert.match(await third.locator('[role=alert]').textContent(), /already used\. Run `queensctl dashboard` for a new one/);
    await cluster.queensctl(['token', 'revoke', 'screen']);
    await page.goto(cluster.url);
    assert.match(page.url(), /\/login$/);
  } finally { await cluster.stop(); }
});

test('HTTPS: a viewer\'s token in both themes, a one-time link, and secure cookies', async () => {
  const cluster = await Cluster.start(['--n', '16', '--listen', '0.0.0.0:0', '--http', '0.0.0.0:0', '--advertise', '127.0.0.1']);
  try {
    assert.match(cluster.url, /^https:/);
    // Browsers do not trust the coordinator's own CA.
    await assert.rejects(open(cluster.url), /ERR_CERT_AUTHORITY_INVALID/);
    const made = JSON.parse(await cluster.queensctl(
      ['token', 'create', '--role', 'viewer', '--name', 'wall', '--json']));
    for (const colorScheme of ['light', 'dark']) {
      const page = await open(cluster.url, { ignoreHTTPSErrors: true, colorScheme });
      assert.match(page.url(), /\/login$/);
      assert.deepEqual(await findings(page), [], `log in, ${colorScheme}`);
      await page.fill('input[name=token]', made.join);
      await page.getByRole('button', { name: 'Log in' }).click();
      await page.waitForSelector('#bar');
      await waitForText(page, '#map-where', /./);
      assert.deepEqual(await findings(page), [], `the page, ${colorScheme}`);
      const [cookie] = await page.context().cookies();
      assert.deepEqual([cookie.name, cookie.secure, cookie.httpOnly, cookie.sameSite], ['queens-session', true, true, 'Lax']);
      assert.deepEqual(page.requested.filter((url) => !url.startsWith(cluster.url)), [], 'external requests');
      assert.equal(await page.getByRole('button', { name: /^Pause run/ }).count(), 0);
    }
    const link = await cluster.link();
    assert.ok(link.startsWith(`${cluster.url}/login/`), link);
    const page = await open(link, { ignoreHTTPSErrors: true });
    await page.waitForSelector('#bar');
    const again = await open(link, { ignoreHTTPSErrors: true });
    assert.match(await again.locator('[role=alert]').textContent(), /already used/);
  } finally { await cluster.stop(); }
});

test('the first screen of a desktop shows figures, board and map, and copied numbers have all digits', async () => {
  // The run is long enough not to end before its number is copied.
  const cluster = await Cluster.start(['--n', '21', '--task-cost', '100000']);
  try {
    cluster.worker('one');
    const page = await open(await cluster.link(), { viewport: { width: 1280, height: 800 }, permissions: ['clipboard-read', 'clipboard-write'] });
    await waitForText(page, '[data-figure=solutions]', /illion$/);
    for (const where of ['#state', '#bar', '.figures', '#board svg', '#board-caption', '#map', '.legend']) {
      const box = await page.locator(where).boundingBox();
      assert.ok(box && box.height > 0 && box.y + box.height <= 800, `${where} is on the first screen: ${JSON.stringify(box)}`);
    }
    const map = await page.locator('#map').boundingBox();
    assert.ok(map.height <= 800 / 3, `${map.height} of 800 high`);
    assert.deepEqual(await page.locator('.legend li').allTextContents(),
      ['pending', 'counting', 'partially done', 'done', 'partially confirmed', 'confirmed', 'parked', 'disputed']);
    // In one step, because the number changes.
    const digits = await page.locator('[data-figure=solutions]').evaluate((figure) => {
      getSelection().selectAllChildren(figure);
      document.execCommand('copy');
      return figure.title;
    });
    assert.match(digits, /^\d{1,3}(,\d{3}){2,}$/);
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), digits);
    await waitForText(page, '#chart-rate', '');
    await page.waitForSelector('#chart-rate canvas');
    assert.deepEqual(page.errors, []);
  } finally { await cluster.stop(); }
});

test('a phone shows all of N = 21 on three screens, with nothing cut off', async () => {
  const cluster = await Cluster.start(['--n', '21']);
  try {
    for (const name of ['lab-a', 'lab-b']) cluster.worker(name);
    const page = await open(await cluster.link());
    await page.locator('#workers tbody tr').nth(1).waitFor();
    await page.waitForSelector('#chart-rate canvas');
    await waitForText(page, '#map-where', /./);
    const [wide, high] = await page.evaluate('[document.documentElement.scrollWidth, document.documentElement.scrollHeight]');
    assert.ok(wide <= phone.width && high <= 2500, `${wide} by ${high}`);
    const outside = await page.evaluate(`[...document.querySelectorAll('main *, header *')].filter((node) => {
      const box = node.getBoundingClientRect();
      return box.width > 0 && !node.closest('.uplot, svg, thead') && (box.right > innerWidth || box.left < 0);
    }).map((node) => node.outerHTML.slice(0, 80))`);
    assert.deepEqual(outside, []);
    console.log(`# a phone's page of N = 21 is ${high} pixels long`);
  } finally { await cluster.stop(); }
});

test('a board shows changing solutions, and stops when paused', async () => {
  for (const args of [['--n', '18'], ['--n', '17', '--method', 'rows']]) {
    const cluster = await Cluster.start(args);
    try {
      const page = await open(await cluster.link());
      const queens = () => page.locator('#board .queens use').evaluateAll((all) => all.map((queen) => [Number(queen.getAttribute('x')), Number(queen.getAttribute('y'))]));
      const first = await queens();
      assert.equal(first.length, Number(args[1]));
      for (const line of [([x]) => x, ([, y]) => y, ([x, y]) => x + y, ([x, y]) => x - y]) {
        assert.equal(new Set(first.map(line)).size, first.length, 'no two queens share a line');
      }
      assert.ok((await page.locator('#board .marked').getAttribute('d')).length > 0);
      await waitForText(page, '#board-caption', /^A solution of task \d+/);
      const explained = page.locator('#board-details p');
      assert.ok(!(await explained.isVisible()));
      await page.locator('#board').click();
      await explained.waitFor({ state: 'visible' });
      const pause = page.getByRole('button', { name: 'Stop changing the board' });
      await page.evaluate(`new Promise((changed) => new MutationObserver(changed).observe(document.getElementById('board'), { childList: true }))`);
      await pause.click();
      const kept = await queens();
      // Two more boards are shown by then, so the page has seen one of them.
      await page.evaluate(`new Promise((seen) => {
        const events = new EventSource('/runs/' + document.body.dataset.run + '/events');
        let boards = 0;
        events.onmessage = (event) => { if (JSON.parse(event.data).board && ++boards === 2) { events.close(); seen(); } };
      })`);
      assert.deepEqual(await queens(), kept);
      const still = await open(await cluster.link(), { reducedMotion: 'reduce' });
      await still.getByRole('button', { name: 'Change the board' }).waitFor();
      assert.deepEqual(page.errors, []);
    } finally { await cluster.stop(); }
  }
});

test('the map shows count, worker, time and recheck of a task, and machines can be sorted', async () => {
  // The run is long enough for both machines to count tasks: a finished run shows no others.
  const cluster = await Cluster.start(['--n', '18', '--method', 'rows', '--task-cost', '100000', '--recheck', 'all']);
  try {
    for (const name of ['beta', 'alpha']) cluster.worker(name);
    await cluster.line(/N = 18: 666,090,624 solutions/);
    const page = await open(await cluster.link());
    await waitForText(page, '#map-where', /./);
    await page.getByRole('button', { name: 'Show in task order' }).click();
    await waitForText(page, '#map-where', /^1 task per cell$/);
    await page.focus('#map');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await waitForText(page, '#map-cell', /^Task \d+: confirmed · [\d,]+ solutions · counted by (alpha|beta) · accepted .*\d\d:\d\d.* · confirmed by /);
    const checks = await page.locator('.checks summary').allTextContents();
    assert.ok(checks.includes('✓journal: passed') && checks.some((check) => /^–.*: not checked$/.test(check)), checks.join());
    await page.getByText('journal: passed').click();
    await page.locator('.checks details[open] p').waitFor();
    await page.setViewportSize({ width: 1280, height: 800 });
    const names = async () => (await page.locator('#workers tbody td:nth-child(1)').allTextContents()).filter((name) => /^(alpha|beta)$/.test(name)).join();
    const head = page.locator('#workers th').nth(0);
    for (const [sort, order] of [['ascending', 'alpha,beta'], ['descending', 'beta,alpha']]) {
      await head.getByRole('button').click();
      assert.equal(await head.getAttribute('aria-sort'), sort);
      assert.equal(await names(), order);
    }
  } finally { await cluster.stop(); }
});

test('a task explains itself, and a finished run has a picture and a certificate', async () => {
  const cluster = await Cluster.start(['--n', '12', '--method', 'frames']);
  try {
    cluster.worker('one');
    await cluster.line(/N = 12: 14,200 solutions/);
    const page = await open(await cluster.link());
    await page.waitForSelector('.result');
    const file = async (address) => (await page.request.get(new URL(address, cluster.url).href)).body();
    const picture = await file(await page.locator('meta[property="og:image"]').getAttribute('content'));
    assert.deepEqual([picture.toString('latin1', 1, 4), picture.readUInt32BE(16), picture.readUInt32BE(20)], ['PNG', 1200, 630]);
    assert.ok(picture.length < 20_000, `${picture.length} bytes`);
    const links = page.locator('.result a[download]');
    assert.deepEqual(await links.allTextContents(), ['n12.json', 'n12.json.counts']);
    const [certificate, counts] = await links.evaluateAll((all) => all.map((link) => link.getAttribute('href')));
    assert.equal(JSON.parse(await file(certificate)).solutions, '14200');
    assert.ok((await file(counts)).length > 0);
    await page.locator('#board').click();
    await page.getByRole('link', { name: 'Explain this task' }).click();
    await waitForText(page, 'h1', /^N = 12: task \d+$/);
    assert.match(await page.locator('#steps-h ~ ol').textContent(), /complementary rows;.* pairs? share no bit/s);
    assert.equal(await page.locator('#board .quadrant').count(), 4);
    assert.deepEqual(await findings(page), []);
    const [wide, high] = await page.evaluate('[document.documentElement.scrollWidth, document.documentElement.scrollHeight]');
    assert.ok(wide <= phone.width && high <= 2500, `${wide} by ${high}`);
    await page.goto(`${cluster.url}/events`);
    await page.selectOption('select[name=kind]', 'complete');
    await page.getByRole('button', { name: 'Apply' }).click();
    await waitForText(page, '#events-h', /^1 event$/);
    assert.equal(await page.locator('select[name=kind]').inputValue(), 'complete');
    assert.deepEqual(await findings(page), []);
    assert.deepEqual(page.errors, []);
  } finally { await cluster.stop(); }
});

test('a dialog confirms the cancellation of a run', async () => {
  const cluster = await Cluster.start(['--n', '18']);
  try {
    const page = await open(await cluster.link());
    const cancel = page.getByRole('button', { name: 'Cancel run N = 18' });
    await cancel.click();
    await page.getByRole('button', { name: 'Keep counting' }).click();
    await page.locator('#ask').waitFor({ state: 'hidden' });
    assert.equal(await page.locator('#state').textContent(), 'running');
    await cancel.click();
    assert.deepEqual(await findings(page), []);
    // Text that is pasted or typed by chance is not the run's first four digits.
    const confirm = page.locator('#ask').getByRole('button', { name: 'Cancel run N = 18' });
    await page.locator('#ask-typed').fill('yes!');
    assert.ok(await confirm.isDisabled());
    await page.locator('#ask-typed').fill(await page.locator('#ask-digits').textContent());
    await confirm.click();
    await waitForText(page, '#state', /^cancelled$/);
  } finally { await cluster.stop(); }
});

test('without scripts a page shows the same figures and no dead buttons', async () => {
  const cluster = await Cluster.start(['--n', '18']);
  try {
    cluster.worker('one');
    const page = await open(await cluster.link(), { javaScriptEnabled: false });
    for (const where of ['#state', '[data-figure=eta]', '[data-figure=solutions]', '#board svg', '[data-figure=tasks]']) {
      assert.ok(await page.locator(where).isVisible(), where);
    }
    // Logging out needs no script.
    assert.deepEqual(await page.locator('button:visible').allTextContents(), ['Log out']);
    assert.equal(await page.locator('meta[http-equiv=refresh]').count(), 1);
  } finally { await cluster.stop(); }
});

test('a finished run prints its result and checks, without buttons', async () => {
  const cluster = await Cluster.start(['--n', '12']);
  try {
    cluster.worker('one');
    await cluster.line(/N = 12: 14,200 solutions/);
    const page = await open(await cluster.link(), { viewport: { width: 800, height: 1100 } });
    await page.waitForSelector('.result');
    await page.emulateMedia({ media: 'print' });
    for (const where of ['.result .number', '.checks summary', '[data-figure=board]', '#workers']) {
      assert.ok(await page.locator(where).first().isVisible(), `${where} is printed`);
    }
    for (const button of await page.locator('button').all()) assert.ok(!(await button.isVisible()));
    // No table is cut off at the edge of an A4 page, 210 mm wide with margins of 12.
    await page.setViewportSize({ width: 703, height: 1000 });
    const wide = await page.evaluate('document.documentElement.scrollWidth');
    assert.ok(wide <= 703, `${wide} wide`);
    const paper = await page.pdf({ format: 'A4' });
    assert.equal(paper.subarray(0, 5).toString(), '%PDF-');
  } finally { await cluster.stop(); }
});

// Starts counting on the page and returns it.
async function count(cluster, browser) {
  const page = await open(`${cluster.url}/count`, {}, browser);
  await page.locator('#name').fill('visitor-1');
  await page.locator('#start').click();
  return page;
}

test('a tab counts a board alone, through a reload, a lost network and a killed coordinator', () => countAlone(chrome));

async function countAlone(browser) {
  const cluster = await Cluster.start(['--n', '18', '--method', 'frames', '--task-cost', '5000', '--volunteers']);
  try {
    const page = await count(cluster, browser);
    assert.deepEqual(await findings(page), []);
    assert.ok(page.bytes < 300_000, `${page.bytes} bytes until the first count`);
    const counted = (at) => waitForText(page, '#tasks', new RegExp(`^[1-9]\\d{${at},}$`));
    await counted(1);
    await page.reload();
    await waitForText(page, '#state', /Counting/);
    await page.context().setOffline(true);
    await waitForText(page, '#problem', /no connection/);
    await page.context().setOffline(false);
    await cluster.kill();
    cluster.serve();
    await cluster.line(/N = 18: 666,090,624 solutions/);
    await waitForText(page, '#state', /Waiting: /);
    assert.deepEqual(page.requested.filter((url) => !url.startsWith(cluster.url)), [], 'external requests');
    await cluster.queensctl(['wait', 'last', '--max-wait', '600s']);
  } finally { await cluster.stop(); }
}

test('a tab of Firefox counts a board alone, through a reload, a lost network and a killed coordinator', async (t) => {
  if (!existsSync(firefoxPath)) return t.skip(`NOT TESTED: ${firefoxPath} not found; apt-get install firefox-esr`);
  const firefox = await launchFirefox();
  try { await countAlone(firefox); } finally { await firefox.close(); }
});

test('a second tab waits for the first, and sends the results that the first kept', async () => {
  const cluster = await Cluster.start(['--n', '19', '--method', 'frames', '--task-cost', '20000', '--volunteers']);
  try {
    const first = await count(cluster);
    await waitForText(first, '#tasks', /^[1-9]\d*$/);
    const second = await first.context().newPage();
    const calls = [];
    second.on('request', (request) => { if (request.url().endsWith('/count/sync')) calls.push(request); });
    await second.goto(`${cluster.url}/count`);
    await waitForText(second, '#problem', /^another tab/);
    // The first tab counts the rest of its package without a connection.
    await first.route('**/count/sync', (route) => route.abort());
    await waitForText(first, '#problem', /^no connection/);
    await waitForText(first, '#state', / 0 of 0 tasks\. [1-9]\d* results /);
    const unsent = await first.evaluate(() => new Promise((done) => {
      indexedDB.open('queens').onsuccess = ({ target: { result: database } }) => {
        const read = database.transaction('kept').objectStore('kept').get('state');
        read.onsuccess = () => done(read.result.results.map(({ proof }) => proof));
      };
    }));
    assert.ok(unsent.length > 0);
    assert.equal(calls.length, 0, 'calls without the lock');
    await first.close();
    // The browser releases the lock of a closed tab some time later.
    await second.evaluate('navigator.locks.request("queens", () => {})');
    await Promise.all([second.waitForRequest('**/count/sync'), second.locator('#start').click()]);
    const lines = calls[0].postDataJSON().lines.trim().split('\n').map((line) => JSON.parse(line));
    assert.deepEqual(lines.filter(({ finished }) => finished).map(({ finished }) => finished.proof), unsent);
    const { acknowledged } = await (await calls[0].response()).json();
    assert.deepEqual(acknowledged.map(({ accepted }) => accepted), unsent.map(() => true));
  } finally { await cluster.stop(); }
});

test('a tab whose counter does not load tries again', async () => {
  const cluster = await Cluster.start(['--n', '19', '--method', 'frames', '--task-cost', '20000', '--volunteers']);
  try {
    // The script of a worker, and the code that the script fetches.
    await Promise.all([/\/counter\.js$/, /\/counter\.wasm\?/].map(async (part) => {
      const page = await open(`${cluster.url}/count`);
      await page.route(part, (route) => route.abort());
      await page.locator('#start').click();
      await waitForText(page, '#problem', /^the counter did not load/);
      await page.unroute(part);
      await waitForText(page, '#tasks', /^[1-9]\d*$/);
    }));
  } finally { await cluster.stop(); }
});

test('a tab and a native worker count a board together, and both get their credit', async () => {
  const cluster = await Cluster.start(['--n', '19', '--method', 'frames', '--task-cost', '20000', '--volunteers']);
  try {
    const tab = await count(cluster);
    await waitForText(tab, '#tasks', /^[1-9]\d*$/);
    cluster.worker('native');
    await cluster.line(/N = 19: 4,968,057,848 solutions/);
    const credits = (await cluster.queensctl(['credits', 'last', '--json'])).split('\n').map(JSON.parse);
    for (const name of ['visitor-1', 'native']) {
      assert.ok(credits.some((credit) => credit.name === name && credit.tasks > 0), `${name} in ${JSON.stringify(credits)}`);
    }
    const page = await open(await cluster.link());
    await page.getByRole('link', { name: 'Credits' }).click();
    await waitForText(page, '#credits-h', new RegExp(`^${credits.length} contributors`));
    assert.deepEqual(await findings(page), []);
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: /Counts of .*volunteers/ }).click();
    assert.equal((await download).suggestedFilename(), 'certificate.json.counts');
    assert.deepEqual(page.errors, []);
  } finally { await cluster.stop(); }
});
