// Counts in this tab: fetches a package, lets each core count its tasks, and submits the results. All of it is kept
// in IndexedDB until the coordinator acknowledges it, so a reload, a lost network or a restart loses nothing.
'use strict';
(async () => {
  const at = (id) => document.getElementById(id);
  const CALL_MS = 15000;
  const CALL_LIMIT_MS = 30000;
  const MEMORY = 2 ** 30;
  let problem = '';
  // A problem of this machine, shown until the next start.
  let fault = '';
  let running = false;
  let turn = null;
  let release = null;
  let timer = 0;
  let calling = null;
  let called = 0;
  const workers = new Set();

  // --- State that outlives the tab
  const opened = (request) => new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  const open = indexedDB.open('queens', 1);
  open.onupgradeneeded = () => open.result.createObjectStore('kept');
  const database = await opened(open).catch(() => null);
  if (!database || typeof WebAssembly !== 'object') {
    return show('this browser cannot count: use a current one on a desktop, not in a private window');
  }
  const kept = { secret: null, name: 'visitor', named: false, chosen: { name: 'visitor', named: false }, header: null, tasks: [], results: [], running: false, done: 0, solutions: '0', run: '', inRun: 0 };
  const stored = () => opened(database.transaction('kept').objectStore('kept').get('state'));
  Object.assign(kept, await stored());
  async function keep() {
    const change = database.transaction('kept', 'readwrite');
    change.objectStore('kept').put(kept, 'state');
    return new Promise((done, failed) => { change.oncomplete = done; change.onabort = () => failed(change.error); });
  }

  // --- One tab at a time
  // Two tabs would count the same tasks, and each would overwrite what the other keeps. So a tab calls and keeps only
  // while it has the lock, and first reads what another one kept. Only secure pages have locks.
  function take() {
    turn ??= new Promise((done, failed) => {
      const hold = async (lock) => {
        if (!lock) throw new Error('another tab of this browser counts or sends results: stop or close it');
        Object.assign(kept, await stored());
        done();
        return new Promise((over) => { release = over; });
      };
      const held = navigator.locks ? navigator.locks.request('queens', { ifAvailable: true }, hold) : hold(true);
      held.catch((error) => { turn = null; failed(error); });
    });
    return turn;
  }
  // Results that could not be kept are only in this tab, which then keeps the lock too.
  function give() {
    const given = turn;
    keep().then(() => {
      if (turn !== given || running || calling) return;
      turn = null;
      release();
    }, () => {});
  }

  // --- Lines of a package
  const TABLE = Array.from({ length: 256 }, (_, byte) => {
    for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? byte >>> 1 ^ 0xedb88320 : byte >>> 1;
    return byte >>> 0;
  });
  function sealed(object) {
    const body = JSON.stringify(object).slice(0, -1);
    let crc = ~0;
    for (const byte of new TextEncoder().encode(body)) crc = crc >>> 8 ^ TABLE[(crc ^ byte) & 255];
    return `${body},"crc":"${(~crc >>> 0).toString(16).padStart(8, '0')}"}\n`;
  }
  function lines() {
    if (!kept.header) return '';
    const tasks = kept.tasks.map((task) => sealed({ task }));
    return sealed({ package: kept.header }) + tasks.concat(kept.results.map((finished) => sealed({ finished }))).join('');
  }
  function unpack(text) {
    for (const line of text.trim().split('\n').map((line) => JSON.parse(line))) {
      if (line.package) kept.header = line.package;
      if (line.task) kept.tasks.push(line.task);
    }
  }

  // --- Calls
  async function post(body) {
    const answer = await fetch('/count/sync', {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
      signal: AbortSignal.timeout(CALL_LIMIT_MS),
    });
    const read = await answer.json();
    if (!answer.ok) throw new Error(read.error.message);
    return read;
  }
  async function call() {
    called = Date.now();
    // The identity is bound to a published name: a choice is valid from the next package on.
    if (!kept.header) Object.assign(kept, kept.chosen);
    const request = () => ({
      secret: kept.secret, name: kept.name, named: kept.named, threads: cores(), memory_bytes_per_thread: MEMORY,
      wants_package: running && kept.tasks.length === 0, lines: lines(),
    });
    let answer = await post(request());
    if (answer.secret) {
      // Another coordinator, or the first call: older leases are not this identity's.
      Object.assign(kept, { secret: answer.secret, header: null, tasks: [], results: [] });
      await keep();
      answer = await post(request());
    }
    const settled = new Map(answer.acknowledged.map((of) => [of.proof, of]));
    for (const { count } of kept.results.filter(({ proof }) => settled.get(proof)?.accepted)) {
      kept.done += 1;
      kept.inRun += 1;
      kept.solutions = (BigInt(kept.solutions) + BigInt(count)).toString();
    }
    kept.results = kept.results.filter(({ proof }) => !settled.has(proof));
    kept.tasks = kept.tasks.filter(({ proof }) => !answer.revoked.includes(proof));
    if (kept.tasks.length + kept.results.length === 0) kept.header = null;
    problem = answer.acknowledged.find((of) => !of.accepted)?.reason ?? '';
    if (answer.package) unpack(answer.package);
    if (kept.header && kept.header.run !== kept.run) Object.assign(kept, { run: kept.header.run, inRun: 0 });
    await keep();
    waiting = running && !kept.header ? answer.reason || 'no tasks' : '';
    if (answer.run) { run = answer.run; at('which').textContent = `the board with N = ${run.n}`; }
    // The tasks are this tab's once the coordinator knows that they are kept.
    if (answer.package) await post({ ...request(), wants_package: false });
  }
  let run = null;
  let waiting = '';
  // One call at a time; those that fail are repeated.
  function sync() {
    calling ??= call().catch((error) => {
      problem = error instanceof TypeError || error.name === 'TimeoutError' ? 'no connection to the server; counting goes on, and the results are kept' : error.message;
    }).finally(() => {
      calling = null;
      draw();
      assign();
      if (!running) give();
    });
    return calling;
  }
  // Without the lock, the tab that has it sends the results.
  function send() { take().then(sync, () => {}); }

  // --- Cores
  const cores = () => Math.max(1, Math.min(64, Number(at('cores').value) || 1));
  function assign() {
    if (!running || paused()) return;
    while (workers.size < cores()) {
      const busy = new Set([...workers].map((worker) => worker.task.proof));
      const task = kept.tasks.find(({ proof }) => !busy.has(proof));
      if (!task) break;
      const worker = [...idle][0] ?? new Worker('/assets/counter.js');
      idle.delete(worker);
      worker.task = task;
      worker.part = 0;
      workers.add(worker);
      worker.onmessage = ({ data }) => heard(worker, data);
      worker.onerror = () => heard(worker, { lost: true });
      const counter = document.body.dataset.counter;
      worker.postMessage({ counter: new URL(counter, location.href).href, header: kept.header, task, memory: MEMORY });
    }
    if (kept.tasks.length > 0 || waiting || timer) return;
    timer = setTimeout(() => { timer = 0; if (running) sync(); }, Math.max(0, called + 1000 - Date.now()));
  }
  const idle = new Set();
  async function heard(worker, { part, task, count, us, problem: failed, lost }) {
    // A stopped worker may have sent something before.
    if (!workers.has(worker)) return;
    // The next call assigns the task to a new worker: by then the network may be back.
    if (lost) {
      workers.delete(worker);
      worker.terminate();
      problem = 'the counter did not load; this tab tries again';
      return draw();
    }
    if (failed) { fault = failed; return stop(); }
    if (part !== undefined) { worker.part = part; return draw(); }
    const { epoch, granted_unix_ms, proof, orientation } = task;
    const { run: of, plan, return_unix_ms } = kept.header ?? {};
    workers.delete(worker);
    idle.add(worker);
    // A revoked task is no longer in the package.
    if (kept.tasks.some((other) => other.proof === proof)) {
      kept.tasks = kept.tasks.filter((other) => other.proof !== proof);
      kept.results.push({
        run: of, plan, task: task.task, epoch, granted_unix_ms, return_unix_ms, proof, count, kernel: 'simd128',
        orientation, duration_us: us,
      });
      await keep();
    }
    draw();
    assign();
  }
  function halt() {
    for (const worker of [...workers, ...idle]) worker.terminate();
    workers.clear();
    idle.clear();
  }
  function start(chosen = kept.chosen) {
    kept.chosen = chosen;
    [running, kept.running, problem, fault] = [true, true, '', ''];
    sync();
  }
  function stop() {
    [running, kept.running] = [false, false];
    halt();
    keep();
    sync();
  }

  // --- Pauses
  let battery = null;
  navigator.getBattery?.().then((found) => { battery = found; battery.onchargingchange = pauseOrGoOn; });
  const paused = () => at('hidden-pause').checked && document.hidden || at('battery-pause').checked && battery && !battery.charging;
  function pauseOrGoOn() {
    if (running && paused()) halt();
    assign();
    draw();
  }
  document.addEventListener('visibilitychange', pauseOrGoOn);
  for (const box of ['hidden-pause', 'battery-pause', 'cores']) at(box).addEventListener('change', pauseOrGoOn);

  // --- The page
  function show(text) { at('problem').textContent = text; at('problem').hidden = !text; }
  function draw() {
    show(fault || problem);
    at('start').disabled = running;
    at('stop').disabled = !running;
    const open = kept.tasks.length;
    const state = !running ? 'Stopped.' : paused() ? 'Paused.' : waiting ? `Waiting: ${waiting}.`
      : `Counting ${workers.size} of ${open} ${open === 1 ? 'task' : 'tasks'}.`;
    const unsent = kept.results.length ? ` ${kept.results.length} results are not sent yet.` : '';
    at('state').textContent = state + unsent;
    const parts = [...workers].map((worker) => worker.part);
    at('progress').value = parts.length ? parts.reduce((sum, part) => sum + part) / parts.length : 0;
    at('tasks').textContent = kept.done.toLocaleString('en');
    at('solutions').textContent = BigInt(kept.solutions).toLocaleString('en');
    if (!run) return;
    at('share').textContent = `${(100 * Math.min(1, kept.inRun / run.tasks)).toPrecision(2)} %`;
    at('run').textContent = `N = ${run.n}, ${(100 * run.done / run.tasks).toFixed(1)} %`;
  }
  at('name').value = kept.chosen.name;
  at('named').checked = kept.chosen.named;
  at('cores').max = navigator.hardwareConcurrency;
  at('cores').value = Math.max(1, navigator.hardwareConcurrency >> 1);
  at('cores-all').textContent = `of ${navigator.hardwareConcurrency}`;
  at('stop').addEventListener('click', stop);
  at('settings').addEventListener('submit', (event) => {
    event.preventDefault();
    begin({ name: at('name').value || 'visitor', named: at('named').checked });
  });
  function begin(chosen) {
    take().then(() => start(chosen), (error) => { fault = error.message; draw(); });
  }
  setInterval(() => { if (running || kept.results.length) send(); }, CALL_MS);
  draw();
  if (kept.running) begin(); else send();
})();
