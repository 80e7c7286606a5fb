// Compares the speeds of one core in a tab, in node and in the native kernels, on the same tasks: node speed.js
// [N] [TASKS] [TASK_COST] [KERNELS]. Three alternating rounds; prints the least CPU seconds of each and their part of the
// tab's.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { browser } from './cluster.js';

const [n = '22', tasks = '4', cost = '300000', kernels = 'scalar,avx2,avx512'] = process.argv.slice(2);
const folder = new URL('../../', import.meta.url).pathname;
const cargo = ['run', '--release', '--quiet', '--locked', '-p', 'common', '--example', 'frames_time', '--'];
const module = gunzipSync(readFileSync(`${folder}worker/browser/browser.wasm.gz`));

// Counts tasks by one kernel of the CPU. Returns a task's number and its count per line, and the CPU seconds.
async function native(kernel) {
  const options = ['--tasks', tasks, '--task-cost', cost, '--kernel', kernel, '--verbose'];
  const { stdout } = await promisify(execFile)('cargo', [...cargo, n, ...options], { cwd: folder });
  const lines = stdout.trim().split('\n').slice(1).map((line) => line.split(' '));
  const counts = lines.slice(0, -1).map((words) => [words[0], words.at(-3)]);
  return { counts, seconds: lines.at(-1).at(lines.at(-1).indexOf('s,') - 1) };
}

// Makes the plan, and counts the first task so that the engine has optimized the module.
async function prepare({ bytes, n, cost, tasks }) {
  const wasm = (await WebAssembly.instantiate(Uint8Array.from(bytes), {})).instance.exports;
  if (wasm.create(n, 2, BigInt(cost), 1n << 30n) !== 0) throw new Error('no plan');
  globalThis.counted = (task) => {
    if (wasm.start(BigInt(task), 0) !== 0 || wasm.step(1n << 62n) !== 0) throw new Error('the count failed');
    return [task, BigInt.asUintN(64, wasm.count()).toString()];
  };
  globalThis.counted(tasks[0]);
}

const countAll = ({ tasks }) => tasks.map((task) => globalThis.counted(task));

async function inNode(work) {
  await prepare(work);
  const before = process.cpuUsage();
  const counts = countAll(work);
  const { user, system } = process.cpuUsage(before);
  return { counts, seconds: (user + system) / 1e6 };
}

const chrome = await browser();
const processes = await chrome.newBrowserCDPSession();

async function cpuSeconds() {
  const { processInfo } = await processes.send('SystemInfo.getProcessInfo');
  return processInfo.filter(({ type }) => type === 'renderer').reduce((sum, { cpuTime }) => sum + cpuTime, 0);
}

async function inTab(work) {
  const page = await chrome.newPage();
  await page.evaluate(prepare, work);
  const before = await cpuSeconds();
  const counts = await page.evaluate(countAll, work);
  const seconds = await cpuSeconds() - before;
  await page.close();
  return { counts, seconds };
}

try {
  const truth = (await native('scalar')).counts;
  const work = { bytes: [...module], n: Number(n), cost, tasks: truth.map(([task]) => task) };
  const natives = kernels.split(',').map((kernel) => [kernel, () => native(kernel)]);
  const ways = [['tab', () => inTab(work)], ['node', () => inNode(work)], ...natives];
  const least = new Map();
  for (let round = 0; round < 3; round += 1) {
    for (const [name, run] of ways) {
      const { counts, seconds } = await run();
      if (JSON.stringify(counts) !== JSON.stringify(truth)) throw new Error(`${name}: other counts`);
      least.set(name, Math.min(seconds, least.get(name) ?? Infinity));
    }
  }
  for (const [name, seconds] of least) console.log(`${name} ${seconds.toFixed(2)} s, ${(seconds / least.get('tab')).toFixed(2)}`);
} finally { await chrome.close(); }
