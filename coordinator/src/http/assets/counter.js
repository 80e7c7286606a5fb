// The Web Worker of one core: counts one task after the other with the WebAssembly of worker/browser.
'use strict';
const LAYOUTS = ['first-rows', 'border', 'frames'];
// Milliseconds between two reports of progress.
const STEP_MS = 200;
let wasm;
let plan = '';

function expect(answer, what) {
  if (answer === 2) throw new Error('not enough memory for this board: choose fewer cores');
  if (answer !== 0) throw new Error(`${what} (${answer})`);
}

// Makes the plan of a package, which must be the coordinator's.
function prepare({ n, layout, task_cost, plan: hash }, memory) {
  if (plan === hash) return;
  expect(wasm.create(n, LAYOUTS.indexOf(layout), BigInt(task_cost), BigInt(memory)), 'unknown plan');
  plan = new TextDecoder().decode(new Uint8Array(wasm.memory.buffer, wasm.hash(), 64));
  if (plan !== hash) throw new Error('this page is too old for the run: reload it');
}

onmessage = async ({ data: { counter, header, task, memory } }) => {
  try {
    if (!wasm) wasm = (await WebAssembly.instantiateStreaming(fetch(counter))).instance.exports;
    prepare(header, memory);
    expect(wasm.start(BigInt(task.task), task.orientation === 'rotated' ? 1 : 0), 'unknown task');
    const all = Number(wasm.remaining());
    const began = performance.now();
    let units = 1;
    while (wasm.remaining() > 0n) {
      const before = performance.now();
      expect(wasm.step(BigInt(units)), 'the count failed');
      const took = performance.now() - before;
      units = Math.max(1, Math.min(1e9, Math.round(units * Math.min(8, STEP_MS / Math.max(1, took)))));
      postMessage({ part: 1 - Number(wasm.remaining()) / all });
    }
    const us = Math.round(1000 * (performance.now() - began));
    postMessage({ task, count: BigInt.asUintN(64, wasm.count()).toString(), us });
  } catch (error) {
    // The code could not be fetched; a later try may succeed.
    if (!wasm && error instanceof TypeError) return postMessage({ lost: true });
    postMessage({ problem: error instanceof WebAssembly.RuntimeError || error instanceof RangeError
      ? 'not enough memory for this board: choose fewer cores' : String(error.message) });
  }
};
