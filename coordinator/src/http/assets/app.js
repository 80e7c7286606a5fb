// Keeps a page as its run is: texts, alarms, workers, charts and the map of tasks. The page stands
// without it; whatever it shows, the coordinator has put into words.
'use strict';
const run = document.body.dataset.run;
// Between two looks at what no event tells of, in milliseconds.
const LOOK = 10000;
const at = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const ask = async (path, options) => {
  const answer = await fetch(path, options);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error.message);
  return body;
};
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// Texts

const over = ['complete', 'contradicted', 'disputed'];
const begun = run ? at('state').dataset.state : '';

function show(facts) {
  // Its result has a section of its own, which comes with the page.
  if (over.includes(facts.state) && facts.state !== begun && facts.ended) { location.reload(); return; }
  for (const node of document.querySelectorAll('[data-w]')) {
    const text = facts.words[node.dataset.w];
    if (text !== undefined) setText(node, text);
  }
  document.title = `${facts.words.what} · ${facts.words.percent}`;
  at('bar').value = facts.fraction;
  at('belief').dataset.belief = facts.belief;
  at('state').dataset.state = facts.state;
  const alarms = facts.alarms.length ? facts.alarms : ['nothing'];
  const list = at('alarms');
  if ([...list.children].map((item) => item.textContent).join('\n') !== alarms.join('\n')) {
    list.replaceChildren(...alarms.map((alarm) => {
      const item = document.createElement('li');
      item.textContent = alarm;
      if (!facts.alarms.length) item.className = 'none';
      return item;
    }));
  }
  showWorkers(facts.workers);
  showRun(run, facts.state);
  if (inOrder && !zoomed) showMap(facts.map);
}

function showWorkers(workers) {
  const body = at('workers').tBodies[0];
  while (body.rows.length > workers.length) body.deleteRow(-1);
  workers.forEach((worker, place) => {
    const row = body.rows[place] || body.insertRow();
    row.dataset.state = worker[0];
    worker.forEach((text, column) => setText(row.cells[column] || row.insertCell(), text));
  });
}

// A run of the list, with those buttons that mean something in its state.
function showRun(id, state) {
  const item = document.querySelector(`[data-run-of-list="${id}"]`);
  if (!item) return;
  setText(item.querySelector('span'), state);
  const focused = document.activeElement;
  const buttons = [...item.querySelectorAll('[data-from]')];
  for (const button of buttons) button.hidden = !button.dataset.from.split(' ').includes(state);
  // Who pressed one that is gone goes on from where it was.
  if (buttons.includes(focused) && focused.hidden) (buttons.find((button) => !button.hidden) ?? item.querySelector('a')).focus();
}

// The map

let map = null;
let zoomed = null;
let inOrder = false;
let chosen = -1;
const names = { w: 'waiting', l: 'leased', d: 'partly done', D: 'done', C: 'confirmed', p: 'set aside', x: 'in dispute' };

function columns() { return at('map').clientWidth < 600 ? 40 : 80; }

function showMap(next) {
  map = next;
  const canvas = at('map');
  const wide = columns();
  const size = Math.max(4, Math.floor((canvas.parentElement.clientWidth - 32) / wide));
  const rows = Math.max(1, Math.ceil(map.cells.length / wide));
  canvas.width = wide * size;
  canvas.height = rows * size;
  const draw = canvas.getContext('2d');
  const colours = {};
  for (const letter of Object.keys(names)) colours[letter] = css(`--${letter}`);
  for (let cell = 0; cell < map.cells.length; cell++) {
    draw.fillStyle = colours[map.cells[cell]];
    draw.fillRect((cell % wide) * size, Math.floor(cell / wide) * size, size - 1, size - 1);
  }
  if (chosen >= 0 && chosen < map.cells.length) {
    draw.strokeStyle = css('--ink');
    draw.lineWidth = 2;
    draw.strokeRect((chosen % wide) * size, Math.floor(chosen / wide) * size, size - 1, size - 1);
  }
  const end = map.first + map.tasks;
  setText(at('map-where'), zoomed ? `Tasks ${map.first} to ${end - 1}` : `${map.per_cell} a cell`);
  at('map-out').disabled = !zoomed;
}

function say(cell) {
  chosen = Math.max(0, Math.min(map.cells.length - 1, cell));
  const first = map.first + chosen * map.per_cell;
  const last = Math.min(first + map.per_cell, map.first + map.tasks) - 1;
  const which = first === last ? `Task ${first}` : `Tasks ${first} to ${last}`;
  setText(at('map-cell'), `${which}: ${names[map.cells[chosen]]}`);
  showMap(map);
}

async function closer() {
  if (!map || chosen < 0) return;
  const first = map.first + chosen * map.per_cell;
  try {
    if (map.per_cell > 1) {
      zoomed = { first, tasks: map.per_cell };
      chosen = 0;
      await refreshZoom();
      say(0);
    } else {
      await tellTask(first);
    }
  } catch (error) { setText(at('map-cell'), error.message); }
}

async function tellTask(number) {
  const task = await ask(`/api/v1/runs/${run}/tasks/${number}`);
  const parts = [`Task ${task.task}: ${task.state}`, `${task.units} units from ${task.first_unit}`,
    `${(task.cost / 1e6).toFixed(1)} s of one core by the plan`];
  if (task.count !== null) parts.push(`count ${task.count}`);
  if (task.workers.length) parts.push(`by ${task.workers.join(', ')}`);
  if (task.failed_attempts) parts.push(`${task.failed_attempts} failed attempts`);
  if (task.contradicting_counts.length) parts.push(`contradicting: ${task.contradicting_counts.join(', ')}`);
  setText(at('map-cell'), parts.join('; '));
}

async function refreshZoom() {
  if (!zoomed) return;
  const wanted = zoomed;
  const part = await ask(`/api/v1/runs/${run}/map?first=${wanted.first}&tasks=${wanted.tasks}`);
  if (wanted === zoomed) showMap(part);
}

// Draws the tasks in their order, or by what their units have in common.
function showOrder(order) {
  inOrder = order;
  zoomed = null;
  chosen = -1;
  setText(at('map-view'), order ? 'By what they have in common' : 'In their order');
}

async function wholeMap() {
  zoomed = null;
  chosen = -1;
  setText(at('map-cell'), '');
  showMap(await ask(`/api/v1/runs/${run}/map`));
}

function cellUnder(event) {
  const canvas = at('map');
  const scale = canvas.width / canvas.clientWidth;
  const size = canvas.width / columns();
  const x = Math.floor((event.offsetX * scale) / size);
  return Math.floor((event.offsetY * scale) / size) * columns() + x;
}

// Charts

const charts = {};

function chart(id, title, series, data) {
  const box = at(id);
  const size = { width: Math.max(200, box.clientWidth), height: 200 };
  if (charts[id]) { charts[id].setData(data); return; }
  const ink = css('--soft');
  const grid = { stroke: css('--line'), width: 1 };
  charts[id] = new uPlot({
    ...size,
    title,
    legend: { show: false },
    cursor: { show: false },
    // As all other times: by UTC, with 24 hours.
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC'),
    axes: [{ stroke: ink, grid, space: 80, values: (_, ticks, axis, space, step) => ticks.map((tick) => time(tick, step)) }, { stroke: ink, grid, size: 80, values: (_, ticks) => ticks.map((tick) => tick === 0 ? '0' : tick.toExponential(2)) }],
    series: [{}, ...series.map((line) => ({ points: { show: false }, ...line }))],
  }, data, box);
}

function time(seconds, step) {
  const iso = new Date(seconds * 1e3).toISOString();
  if (step < 60) return iso.slice(11, 19);
  return iso.slice(11, 16) === '00:00' ? iso.slice(5, 10) : iso.slice(11, 16);
}

async function refreshCharts() {
  const seen = await ask(`/api/v1/runs/${run}/history`);
  const times = seen.unix_seconds;
  if (times.length < 2) return;
  const level = times.map(() => seen.reference.solutions);
  const known = seen.reference.source === 'published';
  const series = [
    { stroke: css('--D'), width: 2 },
    { stroke: css('--D'), width: 1, dash: [4, 4] },
    { stroke: css('--D'), width: 1, dash: [4, 4] },
  ];
  const data = [times, seen.estimate, seen.estimate_low, seen.estimate_high];
  if (known) { series.push({ stroke: css('--C'), width: 2 }); data.push(level); }
  if (seen.estimate.some((value) => value !== null)) {
    chart('chart-estimate', known ? 'Estimate, interval (dashed), published (green), by UTC' : 'Estimate and interval (dashed), by UTC', series, data);
  }
  chart('chart-speed', 'Solutions a second, by UTC', [{ stroke: css('--D'), width: 2, fill: css('--w') }], [times, seen.solutions_per_second]);
}

// An operator's buttons

async function post(button) {
  if (button.dataset.ask && !confirm(button.dataset.ask)) return;
  try {
    const done = await ask(button.dataset.post, { method: 'POST' });
    setText(at('said'), `Run ${done.run} is ${done.state}.`);
    showRun(done.run, done.state);
  } catch (error) { setText(at('said'), error.message); }
}

async function join() {
  try {
    const made = await ask('/api/v1/join', { method: 'POST' });
    setText(at('join-line'), `QUEENS_JOIN=${made.join} worker`);
  } catch (error) { setText(at('join-line'), error.message); }
}

function start() {
  const events = new EventSource(`/runs/${run}/events`);
  events.onmessage = (event) => { setText(at('link'), ''); show(JSON.parse(event.data)); };
  events.onerror = () => {
    setText(at('link'), '(the coordinator does not answer; trying again)');
    // Refused, for good: the run is gone, or the coordinator was started again and asks who this is.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), LOOK);
  };
  const canvas = at('map');
  canvas.addEventListener('click', (event) => {
    if (inOrder) { say(cellUnder(event)); closer(); return; }
    const cell = gridCellUnder(event);
    if (cell >= 0) { sayGrid(cell); closerGrid(); }
  });
  canvas.addEventListener('keydown', (event) => {
    if (!inOrder) { gridKey(event); return; }
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() };
    if (event.key in steps && map) { say(chosen + steps[event.key]); event.preventDefault(); }
    if (event.key === 'Enter') closer();
    if (event.key === 'Escape') wholeMap();
  });
  const whole = () => (inOrder ? wholeMap() : wholeGrid());
  at('map-out').addEventListener('click', whole);
  at('map-view').addEventListener('click', () => { showOrder(!inOrder); whole().catch(() => {}); });
  for (const button of document.querySelectorAll('[data-post]')) button.addEventListener('click', () => post(button));
  if (at('join')) at('join').addEventListener('click', join);
  const redraw = () => {
    for (const id of Object.keys(charts)) { charts[id].destroy(); delete charts[id]; }
    if (inOrder && map) showMap(map);
    if (!inOrder && grid) showGrid(grid);
    refreshCharts().catch(() => {});
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  addEventListener('resize', redraw);
  wholeGrid().catch(() => {});
  refreshCharts().catch(() => {});
  setInterval(() => {
    if (document.hidden) return;
    refreshCharts().catch(() => {});
    (inOrder ? refreshZoom() : refreshGrid()).catch(() => {});
    next().catch(() => {});
  }, LOOK);
}

// The address without a name shows what is counted: once this run is over, the next one.
async function next() {
  if (location.pathname !== '/' || ['running', 'paused'].includes(at('state').dataset.state)) return;
  const { runs } = await ask('/api/v1/runs');
  if (runs.some((other) => other.state === 'running')) location.reload();
}

if (run) start();
// There is none yet.
else if (document.body.dataset.waits) setTimeout(() => location.reload(), LOOK);
