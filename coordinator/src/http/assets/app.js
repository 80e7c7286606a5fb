// Keeps a page up to date: figures, alerts, machines and the board. grid.js draws the task map and
// charts.js the charts. Pages also work without scripts.
'use strict';
const run = document.body.dataset.run;
// Polling interval for data that no event carries.
const POLL_MS = 10000;
const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const fetchJson = async (path, options) => {
  const answer = await fetch(path, options);
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error.message), { status: answer.status });
  return body;
};
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// Texts

const finished = ['complete', 'contradicted', 'disputed'];
const initialState = run ? byId('state').dataset.state : '';
const wasEnded = Boolean(document.querySelector('.result'));

function show({ view, map: tasks, board }) {
  // Only a new page contains the section with the result, or lacks it.
  if (view.ended !== wasEnded || (finished.includes(view.state) && view.state !== initialState && view.ended)) { location.reload(); return; }
  for (const node of document.querySelectorAll('[data-figure]')) {
    const figure = view.figures[node.dataset.figure];
    if (!figure) continue;
    const { short, full } = figure;
    const whole = 'full' in node.dataset;
    setText(node, (whole && full) || short);
    if (full && !whole) [node.title, node.dataset.digits] = [full, full];
    else { node.removeAttribute('title'); delete node.dataset.digits; }
  }
  const short = (name) => view.figures[name].short;
  if (!wasEnded) document.title = `${short('board')} · ${short('percent')}`;
  byId('bar').value = view.fraction;
  byId('verification').dataset.verification = view.verification;
  byId('state').dataset.state = view.state;
  setText(byId('eta-at'), short('eta-at'));
  showEnd(...(view.expected_ms || []));
  showAlerts(view);
  showWorkers(view.workers);
  showCommands('runs', run, view.state);
  const item = document.querySelector(`[data-run-of-list="${run}"]`);
  if (item) setText(item.querySelector('[data-cell=state]'), view.state);
  if (board && !paused) showBoard(board);
  if (map.inOrder && !map.part) { map.data = tasks; drawMap(); }
}

// Shows the expected completion in the reader's time zone.
function showEnd(from, to) {
  if (!from) return;
  const [first, last] = [moment(from), moment(to)];
  const [day, clock] = last.split(', ');
  setText(byId('eta-at'), first === last ? first : `${first} to ${clock && first.startsWith(`${day}, `) ? clock : last}`);
}

// Texts of the alerts about tasks, which the map shows too.
let taskAlerts = '';

function showAlerts({ alerts, alarm }) {
  const list = byId('alert-list');
  byId('alerts').hidden = !alerts.length;
  byId('alerts').dataset.alarm = alarm;
  const aboutTasks = alerts.filter(({ kind }) => kind === 'task_disputed' || kind === 'parked');
  const shownBefore = taskAlerts;
  taskAlerts = aboutTasks.map(({ text }) => text).join('\n');
  if (taskAlerts !== shownBefore && (!map.inOrder || map.part)) refreshMap().catch(() => {});
  const texts = alerts.map(({ text }) => text);
  if ([...list.children].map((item) => item.textContent).join('\n') === texts.join('\n')) return;
  list.replaceChildren(...texts.map((text) => Object.assign(document.createElement('li'), { textContent: text })));
}

// Copies all digits of a number whose short form is selected.
document.addEventListener('copy', (event) => {
  const selection = getSelection();
  const text = selection.toString().trim();
  const within = (shown) => selection.containsNode(shown, true) && shown.textContent.includes(text);
  const node = text && [...document.querySelectorAll('[data-digits]')].find(within);
  if (!node) return;
  event.clipboardData.setData('text/plain', node.dataset.digits);
  event.preventDefault();
});

// The board

let paused = matchMedia('(prefers-reduced-motion: reduce)').matches;

function showBoard({ svg, caption, task }) {
  byId('board-task').href = `/runs/${run}/tasks/${task}`;
  byId('board').innerHTML = svg;
  setText(byId('board-caption'), caption);
  byId('board-details').hidden = false;
}

function pauseBoard(pause) {
  paused = pause;
  const button = byId('board-pause');
  setText(button, pause ? '▶' : '❚❚');
  button.title = pause ? 'Change the board' : 'Stop changing the board';
  button.setAttribute('aria-label', button.title);
}

// Machines

const SECONDS = { s: 1, min: 60, h: 3600, d: 86400, '%': 1 };

// Returns the sort key of a cell: a number with its unit, or its text.
function sortKey(text) {
  const [, digits, unit] = text.trim().match(/^([\d.,]+)(?: (s|min|h|d|%)(?!\w).*)?$/) || [];
  return digits ? Number(digits.replaceAll(',', '')) * (SECONDS[unit] || 1) : text;
}

// Sorts items in the order of a table; `text` returns an item's text in a column.
function sorted(table, items, text) {
  const { column, descending } = table.sorting || {};
  if (column === undefined) return items;
  const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : Number(a > b)) : typeof a === 'number' ? -1 : 1);
  return [...items].sort((a, b) => compare(sortKey(text(a, column)), sortKey(text(b, column))) * (descending ? -1 : 1));
}

function showWorkers(workers) {
  const table = byId('workers');
  const [head, body] = [table.tHead.rows[0], table.tBodies[0]];
  // Rows are reused, so that their buttons keep the focus.
  const known = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  const rows = sorted(table, workers, ({ cells }, column) => cells[column]).map(({ id, state, cells }) => {
    const row = known.get(id) || newRow(id, cells[0]);
    row.dataset.state = state ?? 'disconnected';
    cells.forEach((text, column) => {
      const cell = row.cells[column];
      cell.dataset.head = head.cells[column].textContent;
      cell.toggleAttribute('data-none', text === '–');
      setText(cell, text);
    });
    return row;
  });
  if (rows.length !== body.rows.length || rows.some((row, place) => row !== body.rows[place])) body.replaceChildren(...rows);
  for (const { id, state } of workers) showCommands('workers', id, state);
}

// Creates a row for a worker that connected after the page was loaded.
function newRow(id, name) {
  const row = document.createElement('tr');
  row.dataset.id = id;
  for (const head of byId('workers').tHead.rows[0].cells) row.insertCell().classList.toggle('scripted', head.classList.contains('scripted'));
  addCommands(row, name);
  return row;
}

// Adds a worker's buttons to its row: copies of those that the page contains once.
function addCommands(row, name) {
  if (!row.dataset.id) return;
  row.querySelector('.scripted')?.append(...[...document.querySelectorAll('#worker-commands button')].flatMap((template) => {
    const button = template.cloneNode(true);
    button.dataset.post = template.dataset.post.replace('//', `/${row.dataset.id}/`);
    button.dataset.ask = `${template.dataset.ask}${name}`;
    button.setAttribute('aria-label', button.dataset.ask);
    button.addEventListener('click', () => post(button));
    return [button, ' '];
  }));
}

function startSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.classList.contains('scripted')) return;
    const button = Object.assign(document.createElement('button'), { type: 'button', textContent: head.textContent });
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const { sorting } = table;
      table.sorting = { column, descending: sorting?.column === column && !sorting.descending };
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', table.sorting.descending ? 'descending' : 'ascending');
      table.tBodies[0].append(...sorted(table, [...table.tBodies[0].rows], (row, place) => row.cells[place].textContent));
    });
  });
}

// An operator's buttons

// Shows the commands that apply in the state of a run or worker.
function showCommands(kind, id, state) {
  const focused = document.activeElement;
  const buttons = [...document.querySelectorAll(`[data-post^="/api/v1/${kind}/${id}/"]`)];
  for (const button of buttons) button.hidden = !button.dataset.from.split(' ').includes(state);
  // If the focused button is now hidden, another one gets the focus.
  if (buttons.includes(focused) && focused.hidden) (buttons.find((button) => !button.hidden) ?? byId('main').querySelector('a'))?.focus();
}

// Asks for confirmation of a command with a question.
function confirmed({ dataset }) {
  if (!dataset.ask) return Promise.resolve(true);
  setText(byId('ask-what'), `${dataset.ask}?`);
  setText(byId('ask-why'), dataset.why);
  setText(byId('ask-no'), dataset.no);
  setText(byId('ask-yes'), dataset.ask);
  const [digits, typed] = [dataset.type ?? '', byId('ask-typed')];
  setText(byId('ask-digits'), digits);
  byId('ask-type').hidden = !digits;
  typed.value = '';
  typed.oninput = () => { byId('ask-yes').disabled = typed.value !== digits; };
  typed.oninput();
  byId('ask').showModal();
  if (digits) typed.focus();
  return new Promise((answer) => byId('ask').addEventListener('close', () => answer(byId('ask').returnValue === 'yes'), { once: true }));
}

async function post(button) {
  if (!await confirmed(button)) return;
  try {
    const done = await fetchJson(button.dataset.post, { method: 'POST' });
    if (done.worker) { setText(byId('command-result'), `${button.dataset.ask}: accepted.`); return; }
    setText(byId('command-result'), `Run ${done.run} is ${done.state}.`);
    showCommands('runs', done.run, done.state);
    const item = document.querySelector(`[data-run-of-list="${done.run}"] [data-cell=state]`);
    if (item) setText(item, done.state);
  } catch (error) { setText(byId('command-result'), error.message); }
}

async function prioritize({ dataset, value }) {
  const [headers, body] = [{ 'content-type': 'application/json' }, JSON.stringify({ priority: Number(value) })];
  try {
    const done = await fetchJson(dataset.priority, { method: 'POST', headers, body });
    setText(byId('command-result'), `Run ${done.run} has priority ${done.priority}.`);
  } catch (error) { setText(byId('command-result'), error.message); }
}

async function join(event) {
  event.preventDefault();
  const query = new URLSearchParams(new FormData(byId('join')));
  let line = '';
  try {
    const created = await fetchJson(`/api/v1/join?${query}`, { method: 'POST' });
    line = `QUEENS_JOIN=${created.join} ${query.get('role') === 'worker' ? 'worker' : 'queensctl status'}`;
  } catch (error) { setText(byId('join-line'), error.message); }
  if (line) setText(byId('join-line'), line);
  byId('joined').hidden = false;
  byId('join-what').hidden = byId('join-copy').hidden = !line;
}

async function copy(button, what) {
  // Pages without TLS may not write to the clipboard; the user can still copy the selected text.
  getSelection().selectAllChildren(what);
  try {
    await navigator.clipboard.writeText(what.textContent);
    setText(button, 'Copied');
  } catch { if (document.execCommand('copy')) setText(button, 'Copied'); }
}

async function submit(event, again = false) {
  event.preventDefault();
  const { n, priority, ...texts } = Object.fromEntries(new FormData(byId('submit')));
  const body = JSON.stringify({ n: Number(n), priority: Number(priority), new_run: again, ...texts });
  try {
    const created = await fetchJson('/api/v1/runs', { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    location.assign(document.body.dataset.waits ? '/' : `/runs/${created.run}`);
  } catch ({ message, status }) {
    // A board that already has a run is a choice.
    byId('submit-again').hidden = status !== 409;
    setText(byId('submitted'), message);
  }
}

// Shows the command of the form, and what its run costs.
async function showCost() {
  const { n, priority, method, recheck } = Object.fromEntries(new FormData(byId('submit')));
  const options = [['method', method, 'auto'], ['recheck', recheck, 'auto'], ['priority', priority, '0']];
  const given = options.filter(([, value, usual]) => value !== usual).map(([name, value]) => ` --${name} ${value}`);
  const line = `queensctl submit --n ${n}${given.join('')}`;
  setText(byId('submit-line'), line);
  byId('submit-again').hidden = true;
  setText(byId('submitted'), '');
  if (!byId('submit').closest('details').open) return;
  const { text } = await fetchJson(`/api/v1/cost?${new URLSearchParams({ n, method })}`).catch(({ message }) => ({ text: message }));
  // The answer for an earlier input can come last.
  if (byId('submit-line').textContent === line) setText(byId('submit-cost'), text);
}

// Immediately hides rows without the typed text; the form's button queries the coordinator.
function filter() {
  const wanted = byId('filter').elements.text.value.toLowerCase();
  for (const row of document.querySelectorAll('.runs tbody tr')) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

function start() {
  const events = new EventSource(`/runs/${run}/events`);
  events.onmessage = (event) => { setText(byId('link'), ''); show(JSON.parse(event.data)); };
  events.onerror = () => {
    setText(byId('link'), '(connection lost, reconnecting…)');
    // Refused permanently: the run was deleted, or a restarted coordinator requires a new login.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), POLL_MS);
  };
  events.addEventListener('ended', (event) => {
    events.close();
    setText(byId('link'), `(${JSON.parse(event.data).why})`);
    setTimeout(() => location.reload(), POLL_MS);
  });
  startMap();
  startCharts();
  const { from, to } = byId('eta-at').dataset;
  showEnd(Number(from), Number(to));
  pauseBoard(paused);
  byId('board-pause').addEventListener('click', () => pauseBoard(!paused));
  const redraw = () => { drawMap(); redrawCharts(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  addEventListener('resize', redraw);
  setInterval(() => {
    if (document.hidden) return;
    refreshCharts().catch(() => {});
    if (!map.inOrder || map.part) refreshMap().catch(() => {});
    next().catch(() => {});
  }, POLL_MS);
}

// The page / shows the run in progress: once that run is finished, the next one.
async function next() {
  if (location.pathname !== '/' || ['running', 'paused'].includes(byId('state').dataset.state)) return;
  const { runs } = await fetchJson('/api/v1/runs');
  if (runs.some((other) => other.state === 'running')) location.reload();
}

for (const button of document.querySelectorAll('[data-post]')) button.addEventListener('click', () => post(button));
for (const input of document.querySelectorAll('[data-priority]')) input.addEventListener('change', () => prioritize(input));
for (const row of byId('workers')?.tBodies[0].rows ?? []) {
  addCommands(row, row.cells[0].textContent);
  showCommands('workers', row.dataset.id, row.dataset.state);
}
document.querySelectorAll('.sortable').forEach(startSorting);
for (const time of document.querySelectorAll('time[data-ms]')) setText(time, moment(Number(time.dataset.ms)));
byId('filter')?.addEventListener('input', filter);
byId('join')?.addEventListener('submit', join);
for (const [button, what] of [['join-copy', 'join-line'], ['result-copy', 'result']]) byId(button)?.addEventListener('click', () => copy(byId(button), byId(what)));
byId('submit')?.addEventListener('submit', submit);
byId('submit')?.addEventListener('change', showCost);
byId('submit')?.closest('details').addEventListener('toggle', showCost);
if (byId('submit')) showCost();
byId('submit-again')?.addEventListener('click', (event) => submit(event, true));
if (run) start();
// Without a run: reloads the page until there is one, unless the user is filling in a form.
else if (document.body.dataset.waits) setInterval(() => { if (!document.activeElement?.form && byId('joined')?.hidden !== false) location.reload(); }, POLL_MS);
