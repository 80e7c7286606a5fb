// The task map: grouped by frame (a sheet of A and C for each number of queens) or by prefix, or in
// task order. A click zooms into a cell, down to one task.
'use strict';
const states = { w: 'pending', l: 'counting', d: 'partially done', D: 'done', c: 'partially confirmed', C: 'confirmed', p: 'parked', x: 'disputed' };
// Height in pixels: at most a third of a small screen.
let mapHeight = 260;
const map = { inOrder: false, data: null, part: null, chosen: -1, squares: [], names: [], height: 0 };
const number = (value) => Number(value).toLocaleString('en');
const span = (first, length) => (length > 1 ? `${number(first)} to ${number(first + length - 1)}` : number(first));
const tasksOf = (first, last) => (first === last ? `Task ${number(first)}` : `Tasks ${number(first)} to ${number(last)}`);

function layOrder(width) {
  const { cells, done, per_cell: each, first, tasks } = map.data;
  let size = Math.min(48, Math.max(4, Math.ceil(Math.sqrt((width * mapHeight) / Math.max(1, cells.length)))));
  while (size > 4 && Math.ceil(cells.length / Math.floor(width / size)) * size > mapHeight) size--;
  const across = Math.floor(width / size);
  map.names = [];
  map.squares = [...cells].map((letter, index) => {
    const start = first + index * each;
    return { letter, done: done[index] / 9, across, size, x: (index % across) * size, y: Math.floor(index / across) * size, tasks: [start, Math.min(start + each, first + tasks) - 1] };
  });
  map.height = Math.ceil(cells.length / across) * size;
}

function layGroups(width) {
  const { sheets } = map.data;
  const [gap, label] = [12, sheets[0].name ? 17 : 0];
  // Finds the number of sheets side by side that makes them largest.
  let [beside, tile] = [1, 0];
  for (let next = 1; next <= sheets.length; next++) {
    const rows = Math.ceil(sheets.length / next);
    const side = Math.min((width - gap * (next - 1)) / next, (mapHeight - gap * (rows - 1)) / rows - label);
    if (side > tile) [beside, tile] = [next, Math.floor(side)];
  }
  map.squares = [];
  map.names = [];
  sheets.forEach((sheet, nth) => {
    const [left, top] = [(nth % beside) * (tile + gap), Math.floor(nth / beside) * (tile + label + gap) + label];
    const down = Math.ceil(sheet.cells.length / Math.max(1, sheet.across));
    const size = Math.max(2, Math.min(24, Math.floor(tile / Math.max(1, sheet.across, down))));
    map.names.push([sheet.name, left, top - 5]);
    [...sheet.cells].forEach((letter, index) => {
      const row = sheet.row + Math.floor(index / sheet.across) * sheet.rows_per_cell;
      const column = sheet.column + (index % sheet.across) * sheet.columns_per_cell;
      map.squares.push({
        letter, done: sheet.done[index] / 9, size, across: sheet.across, x: left + (index % sheet.across) * size, y: top + Math.floor(index / sheet.across) * size,
        tasks: sheet.tasks && sheet.tasks[index], name: sheet.name,
        part: { sheet: sheet.sheet, row, column, rows: Math.min(sheet.rows_per_cell, sheet.row + sheet.rows - row), columns: Math.min(sheet.columns_per_cell, sheet.column + sheet.columns - column) },
      });
    });
  });
  const rows = Math.ceil(sheets.length / beside);
  map.height = rows * (tile + label) + (rows - 1) * gap;
}

function drawSquare(draw, colors, { letter, done, x, y, size }) {
  const inner = size - (size > 3 ? 1 : 0);
  const box = (color, from, height) => { draw.fillStyle = color; draw.fillRect(x + inner * from, y + inner * (1 - height) / 2, inner * (1 - 2 * from), inner * height); };
  // The done part decides how dark a cell is.
  box(colors['Cpx'.includes(letter) ? letter : 'w'], 0, 1);
  if (!'Cpx'.includes(letter)) { draw.globalAlpha = done; box(colors.D, 0, 1); draw.globalAlpha = 1; }
  if (letter === 'l') box(colors.l, 0.25, 0.5);
  if (size < 5) return;
  if (letter === 'C') box(colors.mark, 0.34, 0.32);
  if (letter === 'c') box(colors.C, 0.3, 0.4);
  if (letter === 'p') box(colors.mark, 0.12, 0.2);
  if (letter === 'x') {
    draw.strokeStyle = colors.mark;
    draw.lineWidth = Math.max(1, size / 8);
    draw.beginPath();
    draw.moveTo(x + inner * 0.2, y + inner * 0.2); draw.lineTo(x + inner * 0.8, y + inner * 0.8);
    draw.moveTo(x + inner * 0.8, y + inner * 0.2); draw.lineTo(x + inner * 0.2, y + inner * 0.8);
    draw.stroke();
  }
}

function drawMap() {
  if (!map.data) return;
  const canvas = byId('map');
  const style = getComputedStyle(canvas.parentElement);
  const width = Math.floor(canvas.parentElement.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
  mapHeight = width < 600 ? 200 : 260;
  if (map.inOrder) layOrder(width); else layGroups(width);
  const scale = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [width * scale, Math.max(1, map.height) * scale];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${Math.max(1, map.height)}px`];
  const draw = canvas.getContext('2d');
  draw.scale(scale, scale);
  const colors = { mark: css('--mark') };
  for (const letter of Object.keys(states)) colors[letter] = css(`--${letter}`);
  for (const square of map.squares) if (states[square.letter]) drawSquare(draw, colors, square);
  draw.fillStyle = css('--ink');
  draw.font = `${width < 600 ? 10 : 12}px system-ui, sans-serif`;
  for (const [name, x, y] of map.names) draw.fillText(name, x, y);
  const chosen = map.squares[map.chosen];
  if (chosen) {
    draw.strokeStyle = css('--ink');
    draw.lineWidth = 2;
    draw.strokeRect(chosen.x, chosen.y, chosen.size - 1, chosen.size - 1);
  }
  const { data, part } = map;
  const where = map.inOrder
    ? part ? tasksOf(data.first, data.first + data.tasks - 1) : data.per_cell === 1 ? '1 task per cell' : `${number(data.per_cell)} tasks per cell`
    : `${part ? `${data.sheets[0].name} rows ${span(part.row, part.rows)}, columns ${span(part.column, part.columns)}; ` : ''}down: ${data.rows_are}; across: ${data.columns_are}`;
  setText(byId('map-where'), where);
  byId('map-out').disabled = !part;
  setText(byId('map-view'), map.inOrder ? byId('map-view').dataset.group : 'Show in task order');
  if (!performance.getEntriesByName('map-drawn').length) performance.mark('map-drawn');
}

function choose(cell) {
  map.chosen = Math.max(0, Math.min(map.squares.length - 1, cell));
  const { letter, tasks, name, part } = map.squares[map.chosen];
  const state = states[letter] || 'not scheduled (symmetric to another frame)';
  const which = tasks && tasksOf(...tasks);
  const place = part && `${name} row ${span(part.row, part.rows)}, column ${span(part.column, part.columns)}`.trim();
  setText(byId('map-cell'), map.inOrder ? `${which}: ${state}` : `${place}: ${state}${which ? `; ${which}` : ''}`);
  drawMap();
}

// Zooms into the chosen cell, or shows its only task.
async function zoomIn() {
  const chosen = map.squares[map.chosen];
  if (!chosen || !states[chosen.letter]) return;
  const { tasks, part } = chosen;
  try {
    if (tasks && tasks[0] === tasks[1]) { await showTask(tasks[0]); return; }
    if (tasks && (map.inOrder || (part.rows === 1 && part.columns === 1))) {
      map.inOrder = true;
      map.part = { first: tasks[0], tasks: tasks[1] - tasks[0] + 1 };
    } else map.part = part;
    map.chosen = 0;
    await refreshMap();
    choose(0);
  } catch (error) { setText(byId('map-cell'), error.message); }
}

async function showTask(which) {
  const chosen = byId('map-cell').textContent;
  const task = await fetchJson(`/api/v1/runs/${run}/tasks/${which}`);
  // The user may have chosen another cell meanwhile.
  if (byId('map-cell').textContent !== chosen) return;
  const parts = [`Task ${number(task.task)}: ${task.state}`];
  if (task.count !== null) parts.push(`${BigInt(task.count).toLocaleString('en')} solutions`);
  if (task.workers.length) parts.push(`${task.count !== null ? 'counted by' : task.state === 'counting' ? 'being counted by' : 'leased to'} ${task.workers.join(', ')}`);
  if (task.accepted_ms_ago !== null) parts.push(`accepted ${moment(Date.now() - task.accepted_ms_ago)}`);
  if (task.count !== null) parts.push(task.confirmed_by ? `confirmed by ${task.confirmed_by}` : 'not rechecked');
  if (task.failed_attempts) parts.push(`${task.failed_attempts} failed attempts`);
  if (task.conflicting_counts.length) parts.push(`conflicting counts: ${task.conflicting_counts.join(', ')}`);
  parts.push(`${number(task.units)} units from ${number(task.first_unit)}`, `estimated cost: ${(task.cost / 1e6).toFixed(1)} core-seconds`);
  const link = Object.assign(document.createElement('a'), { href: `/runs/${run}/tasks/${which}`, textContent: 'Explain this task' });
  byId('map-cell').replaceChildren(`${parts.join(' · ')} · `, link);
}

async function refreshMap() {
  const { inOrder, part } = map;
  const query = part ? `?${new URLSearchParams(part)}` : '';
  const data = await fetchJson(`/api/v1/runs/${run}/${inOrder ? 'map' : 'grid'}${query}`);
  if (inOrder === map.inOrder && part === map.part) { map.data = data; drawMap(); }
}

function wholeMap() {
  [map.part, map.chosen] = [null, -1];
  setText(byId('map-cell'), map.hint);
  return refreshMap();
}

function startMap() {
  map.hint = byId('map-cell').textContent;
  const canvas = byId('map');
  canvas.addEventListener('click', ({ offsetX: x, offsetY: y }) => {
    const cell = map.squares.findIndex((square) => x >= square.x && x < square.x + square.size && y >= square.y && y < square.y + square.size);
    if (cell >= 0) { choose(cell); zoomIn(); }
  });
  canvas.addEventListener('keydown', (event) => {
    if (!map.squares.length) return;
    const { across } = map.squares[Math.max(0, map.chosen)];
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    if (event.key in steps) { choose(map.chosen + steps[event.key]); event.preventDefault(); }
    if (event.key === 'Enter') zoomIn();
    if (event.key === 'Escape') wholeMap().catch(() => {});
  });
  byId('map-out').addEventListener('click', () => wholeMap().catch(() => {}));
  byId('map-view').addEventListener('click', () => { map.inOrder = !map.inOrder; wholeMap().catch(() => {}); });
  wholeMap().catch(() => {});
}
