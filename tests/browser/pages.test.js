// The pages as people meet them: a phone, a keyboard, both themes, a viewer and an operator.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { House, browser } from './house.js';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const phone = { width: 390, height: 844 };
let chrome;
before(async () => { chrome = await browser(); });
after(async () => { await chrome?.close(); });

// A page that remembers what it asked for and what went wrong. axe is put into it from outside, which
// the pages' own policy would not let them do.
async function open(url, options = {}) {
  const context = await chrome.newContext({ viewport: phone, ...options });
  const page = await context.newPage();
  page.asked = [];
  page.errors = [];
  page.bytes = 0;
  page.on('request', (request) => page.asked.push(request.url()));
  page.on('console', (message) => { if (message.type() === 'error') page.errors.push(message.text()); });
  page.on('pageerror', (error) => page.errors.push(String(error)));
  page.on('response', async (response) => {
    if (!response.url().endsWith('/events')) page.bytes += Number(response.headers()['content-length'] ?? 0);
  });
  await page.goto(url);
  return page;
}

// Waits until an element says so. Not by a function in the page, which the page's policy forbids.
async function says(page, where, what) {
  await page.locator(where).filter({ hasText: what }).first().waitFor({ state: 'attached' });
}

async function findings(page) {
  const found = await page.evaluate(`${axe}; axe.run(document)`);
  return found.violations
    .filter((finding) => ['serious', 'critical'].includes(finding.impact))
    .map((finding) => `${finding.id}: ${finding.nodes.map((node) => node.html).join(' ')}`);
}

test('a phone shows first what matters, from nowhere else and in few bytes', async () => {
  const house = await House.start(['--n', '16', '--task-cost', '100000']);
  try {
    const page = await open(house.url);
    for (const where of ['[data-w=what]', '[data-w=percent]', '[data-w=ends]', '#belief', '#alarms']) {
      const box = await page.locator(where).boundingBox();
      assert.ok(box && box.y + box.height <= phone.height, `${where} is on the first screen: ${JSON.stringify(box)}`);
    }
    const wide = await page.evaluate('document.documentElement.scrollWidth');
    assert.ok(wide <= phone.width, `nothing is wider than the phone: ${wide}`);
    await says(page, '#map-where', /./);
    assert.deepEqual(page.asked.filter((url) => !url.startsWith(house.url)), [], 'external requests');
    assert.deepEqual(page.errors, []);
    assert.ok(page.bytes > 10_000 && page.bytes < 250_000, `${page.bytes} bytes`);
    const paint = await page.evaluate('performance.getEntriesByName("first-contentful-paint")[0]?.startTime');
    console.log(`# first paint after ${Math.round(paint)} ms, ${page.bytes} bytes`);
  } finally { await house.stop(); }
});

for (const colorScheme of ['light', 'dark']) {
  test(`no serious finding for those who do not see or point, ${colorScheme}`, async () => {
    const house = await House.start(['--n', '14', '--task-cost', '100000']);
    try {
      house.worker('one');
      await house.line(/N = 14: 365,596 solutions/);
      const page = await open(house.url, { colorScheme });
      await page.waitForSelector('#workers tbody tr');
      assert.deepEqual(await findings(page), []);
      assert.equal(await page.locator('.result .number').first().textContent(), '365,596');
    } finally { await house.stop(); }
  });
}

test('a page follows its run to the end', async () => {
  const house = await House.start(['--n', '15', '--task-cost', '200000']);
  try {
    const page = await open(house.url);
    assert.match(await page.locator('#alarms').textContent(), /no worker is connected/);
    house.worker('one');
    await says(page, '#state', /^complete$/);
    assert.equal(await page.locator('[data-w=percent]').textContent(), '100.00 %');
    await says(page, '.result .number', /^2,279,184$/);
    await says(page, '#workers tbody td:nth-child(2)', /^one$/);
    assert.deepEqual(page.errors, []);
  } finally { await house.stop(); }
});

test('the map is looked at with the keyboard, down to one task', async () => {
  const house = await House.start(['--n', '18', '--method', 'rows', '--task-cost', '1000']);
  try {
    const page = await open(house.url);
    await page.getByRole('button', { name: 'In their order' }).click();
    await says(page, '#map-where', /a cell$/);
    await page.focus('#map');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    const said = () => page.locator('#map-cell').textContent();
    assert.match(await said(), /^Tasks? 1|^Tasks? \d+ to \d+: waiting/);
    // From cells of the whole run to one task a cell, and into that task.
    await page.keyboard.press('Enter');
    await says(page, '#map-where', /^Tasks \d+ to \d+$/);
    await says(page, '#map-cell', /^Task \d+: waiting$/);
    await page.keyboard.press('Enter');
    await says(page, '#map-cell', /^Task \d+: waiting; \d+ units from \d+/);
    await page.keyboard.press('Escape');
    await page.locator('#map-out:disabled').waitFor();
  } finally { await house.stop(); }
});

test('frames are a map of A and C, entered down to one task, also those of N = 28', async () => {
  const house = await House.start(['--n', '28']);
  try {
    const page = await open(house.url, { viewport: { width: 1280, height: 1000 } });
    await says(page, '#map-where', /down: A, the columns of P; across: C, the columns of R/);
    const [drawn, asked, began] = await page.evaluate(`[
      performance.getEntriesByName('map-drawn')[0].startTime,
      performance.getEntriesByType('resource').find((entry) => entry.name.endsWith('/grid')).duration,
      performance.getEntriesByType('resource').find((entry) => entry.name.endsWith('/grid')).startTime,
    ].map(Math.round)`);
    console.log(`# the map of N = 28 stands ${drawn} ms after the page was asked for, ${drawn - began} ms after itself was; ${asked} ms of that is its answer`);
    // Not all of one colour: units that wait, and places where no unit is.
    const colours = await page.evaluate(`(() => {
      const canvas = document.getElementById('map');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      const seen = new Set();
      for (let at = 0; at < pixels.length; at += 4) seen.add(pixels.slice(at, at + 4).join());
      return seen.size;
    })()`);
    assert.ok(colours > 2, `${colours} colours`);
    await page.focus('#map');
    await page.keyboard.press('ArrowRight');
    await says(page, '#map-cell', /^m = 1 row \d+, column \d+: waiting/);
    const cell = () => page.locator('#map-cell').textContent();
    for (let step = 0; step < 6 && !/^Task /.test(await cell()); step++) {
      const before = (await cell()).replace(/[()]/g, '.');
      await page.keyboard.press('Enter');
      await page.locator('#map-cell').filter({ hasNotText: new RegExp(`^${before}$`) }).waitFor({ state: 'attached' });
    }
    assert.match(await cell(), /^Task \d+: waiting; \d+ units from \d+/);
    await page.keyboard.press('Escape');
    await page.locator('#map-out:disabled').waitFor();
    assert.deepEqual(page.errors, []);
  } finally { await house.stop(); }
});

test('an operator pauses and resumes a run', async () => {
  const house = await House.start(['--n', '16']);
  try {
    const page = await open(house.url);
    await page.getByRole('button', { name: /^pause/ }).click();
    await says(page, '#state', /^paused$/);
    await page.getByRole('button', { name: /^resume/ }).click();
    await says(page, '#state', /^running$/);
  } finally { await house.stop(); }
});

test('a page without a run finds the first, offers what its state allows, and goes on with the next', async () => {
  const house = await House.start([]);
  try {
    const page = await open(house.url);
    await says(page, 'h1', /^No runs$/);
    await house.queensctl(['submit', '--n', '9']);
    await page.waitForSelector('#bar');
    const list = page.locator('.runs li');
    const offered = async () => (await list.first().locator('button:visible').allTextContents()).join();
    assert.equal(await offered(), 'pause,cancel');
    await page.getByRole('button', { name: /^pause/ }).press('Enter');
    await says(page, '#state', /^paused$/);
    assert.equal(await offered(), 'resume,cancel');
    await says(page, '[data-w=ends]', /^paused; to go on: queensctl resume [0-9a-f]{16}$/);
    // The keyboard stands where it did.
    await page.keyboard.press('Enter');
    await says(page, '#state', /^running$/);
    house.worker('one');
    await page.waitForSelector('.result');
    assert.equal(await offered(), '');
    await house.queensctl(['submit', '--n', '22']);
    await says(page, '[data-w=what]', /^N = 22$/);
    assert.equal(await list.count(), 2);
    assert.deepEqual(page.errors, []);
  } finally { await house.stop(); }
});

test('a page outlives its coordinator, and logs in again where that is asked for', async () => {
  for (const asks of [false, true]) {
    const house = await House.start(asks ? ['--n', '16', '--require-token'] : ['--n', '16']);
    try {
      let url = house.url;
      if (asks) url = await house.queensctl(['dashboard'], { QUEENS_JOIN: (await house.line(/QUEENS_JOIN=(\S+) queensctl/))[1] });
      const page = await open(url);
      await page.waitForSelector('#bar');
      await house.kill();
      await says(page, '#link', /does not answer/);
      house.serve();
      if (asks) await page.waitForURL(/\/login$/);
      else await says(page, '#link', /^$/);
    } finally { await house.stop(); }
  }
});

test('a token or a link lets in, a link only once, and a viewer changes nothing', async () => {
  const house = await House.start(['--n', '16', '--require-token']);
  try {
    const QUEENS_JOIN = (await house.line(/QUEENS_JOIN=(\S+) queensctl/))[1];
    const page = await open(house.url);
    assert.match(page.url(), /\/login$/);
    assert.deepEqual(await findings(page), []);
    await page.fill('input[name=token]', 'nonsense');
    await page.getByRole('button', { name: 'Look' }).click();
    await page.waitForSelector('[role=alert]');
    const made = JSON.parse(await house.queensctl(
      ['token', 'create', '--role', 'viewer', '--name', 'screen', '--json'], { QUEENS_JOIN }));
    await page.fill('input[name=token]', made.join);
    await page.getByRole('button', { name: 'Look' }).click();
    await page.waitForSelector('#bar');
    assert.equal(await page.getByRole('button', { name: /^pause/ }).count(), 0);
    const code = await page.evaluate('fetch("/api/v1/runs/last/pause", { method: "POST" }).then((answer) => answer.status)');
    assert.equal(code, 403);
    const link = await house.queensctl(['dashboard'], { QUEENS_JOIN });
    assert.match(link, /\/login\/[\w-]+$/);
    const other = await open(link);
    await other.waitForSelector('#bar');
    assert.ok(await other.getByRole('button', { name: /^pause/ }).count() > 0, 'as who asked for the link');
    await other.getByRole('button', { name: 'Make a line' }).click();
    await says(other, '#join-line', /QUEENS_JOIN=queens1-/);
    const third = await open(link);
    assert.match(await third.locator('[role=alert]').textContent(), /used before/);
    await house.queensctl(['token', 'revoke', 'screen'], { QUEENS_JOIN });
    await page.goto(house.url);
    assert.match(page.url(), /\/login$/);
  } finally { await house.stop(); }
});

test('over HTTPS: a viewer\'s token in both themes, a link once, and cookies for TLS alone', async () => {
  const house = await House.start(['--n', '16', '--listen', '0.0.0.0:0', '--http', '0.0.0.0:0', '--advertise', '127.0.0.1', '--require-token']);
  try {
    const QUEENS_JOIN = (await house.line(/QUEENS_JOIN=(\S+) queensctl/))[1];
    assert.match(house.url, /^https:/);
    // The coordinator's own authority is none that a browser knows before it is told.
    await assert.rejects(open(house.url), /ERR_CERT_AUTHORITY_INVALID/);
    const made = JSON.parse(await house.queensctl(
      ['token', 'create', '--role', 'viewer', '--name', 'wall', '--json'], { QUEENS_JOIN }));
    for (const colorScheme of ['light', 'dark']) {
      const page = await open(house.url, { ignoreHTTPSErrors: true, colorScheme });
      assert.match(page.url(), /\/login$/);
      assert.deepEqual(await findings(page), [], `log in, ${colorScheme}`);
      await page.fill('input[name=token]', made.join);
      await page.getByRole('button', { name: 'Look' }).click();
      await page.waitForSelector('#bar');
      await says(page, '#map-where', /./);
      assert.deepEqual(await findings(page), [], `the page, ${colorScheme}`);
      const [cookie] = await page.context().cookies();
      assert.deepEqual([cookie.name, cookie.secure, cookie.httpOnly, cookie.sameSite], ['queens-session', true, true, 'Lax']);
      assert.deepEqual(page.asked.filter((url) => !url.startsWith(house.url)), [], 'external requests');
      assert.equal(await page.getByRole('button', { name: /^pause/ }).count(), 0);
    }
    const link = await house.queensctl(['dashboard'], { QUEENS_JOIN });
    assert.ok(link.startsWith(`${house.url}/login/`), link);
    const page = await open(link, { ignoreHTTPSErrors: true });
    await page.waitForSelector('#bar');
    const again = await open(link, { ignoreHTTPSErrors: true });
    assert.match(await again.locator('[role=alert]').textContent(), /used before/);
  } finally { await house.stop(); }
});

test('a finished run prints: its result and checks on paper, without buttons', async () => {
  const house = await House.start(['--n', '12']);
  try {
    house.worker('one');
    await house.line(/N = 12: 14,200 solutions/);
    const page = await open(house.url, { viewport: { width: 800, height: 1100 } });
    await page.waitForSelector('.result');
    await page.emulateMedia({ media: 'print' });
    for (const where of ['.result .number', '.result table', '[data-w=what]', '#workers']) {
      assert.ok(await page.locator(where).first().isVisible(), `${where} is printed`);
    }
    for (const button of await page.locator('button').all()) assert.ok(!(await button.isVisible()));
    // No table is cut off at the edge of an A4 page, 210 mm wide with margins of 12.
    await page.setViewportSize({ width: 703, height: 1000 });
    const wide = await page.evaluate('document.documentElement.scrollWidth');
    assert.ok(wide <= 703, `${wide} wide`);
    const paper = await page.pdf({ format: 'A4' });
    assert.equal(paper.subarray(0, 5).toString(), '%PDF-');
  } finally { await house.stop(); }
});
