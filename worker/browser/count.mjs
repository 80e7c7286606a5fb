// Counts tasks with browser.wasm.gz: [{"n":…,"layout":…,"task_cost":"…","rotated":…,"tasks":["…"]}] in the first
// argument. Prints the hash of each plan, and the counts of the tasks, each counted in steps of one unit and at once.
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

const file = new URL('browser.wasm.gz', import.meta.url);
const { instance } = await WebAssembly.instantiate(gunzipSync(readFileSync(file)), {});
const wasm = instance.exports;

function count(task, rotated, units) {
  const started = wasm.start(task, rotated);
  if (started !== 0) throw new Error(`start: ${started}`);
  while (wasm.remaining() > 0n) {
    const stepped = wasm.step(units);
    if (stepped !== 0) throw new Error(`step: ${stepped}`);
  }
  return BigInt.asUintN(64, wasm.count()).toString();
}

const results = JSON.parse(process.argv[2]).map(({ n, layout, task_cost, rotated, tasks }) => {
  const created = wasm.create(n, layout, BigInt(task_cost), 1n << 30n);
  if (created !== 0) return { created };
  const hash = Buffer.from(wasm.memory.buffer, wasm.hash(), 64).toString();
  const counts = tasks.map(task => [1n, 1n << 62n].map(units => count(BigInt(task), rotated, units)));
  wasm.free();
  return { hash, counts };
});
console.log(JSON.stringify(results));
