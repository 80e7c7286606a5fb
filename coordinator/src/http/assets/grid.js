// The task map: grouped by frame (a sheet of A and C for each number of queens) or by prefix, or in
// task order. A click zooms into a cell, down to one task.
'use strict';
const states = { w: 'pending', l: 'leased', d: 'partially done', D: 'done', c: 'done, some of it confirmed', C: 'confirmed', p: 'parked', x: 'disputed' };
// Height in pixels: at most a third of a small screen.
let mapHigh = 260;
const map = { inOrder: false, data: null, part: null, chosen: -1, squares: [], names: [], high: 0 };
const number = (value) => Number(value).toLocaleString('en');
const span = (first, length) => (length > 1 ? `${number(first)} to ${number(first + length - 1)}` : number(first));
const tasksOf = (first, last) => (first === last ? `Task ${number(first)}` : `Tasks ${number(first)} to ${number(last)}`);

function layOrder(wide) {
  const { cells, per_cell: each, first, tasks } = map.data;
  let size = Math.min(22, Math.max(4, Math.ceil(Math.sqrt((wide * mapHigh) / Math.max(1, cells.length)))));
  while (size > 4 && Math.ceil(cells.length / Math.floor(wide / size)) * size > mapHigh) size--;
  const across = Math.floor(wide / size);
  map.names = [];
  map.squares = [...cells].map((letter, at) => {
    const start = first + at * each;
    return { letter, across, size, x: (at % across) * size, y: Math.floor(at / across) * size, tasks: [start, Math.min(start + each, first + tasks) - 1] };
  });
  map.high = Math.ceil(cells.length / across) * size;
}

function layGroups(wide) {
  const { sheets } = map.data;
  const [gap, label] = [12, sheets[0].name ? 17 : 0];
  // Finds the number of sheets side by side that makes them largest.
  let [beside, tile] = [1, 0];
  for (let next = 1; next <= sheets.length; next++) {
    const rows = Math.ceil(sheets.length / next);
    const room = Math.min((wide - gap * (next - 1)) / next, (mapHigh - gap * (rows - 1)) / rows - label);
    if (room > tile) [beside, tile] = [next, Math.floor(room)];
  }
  map.squares = [];
  map.names = [];
  sheets.forEach((sheet, nth) => {
    const [left, top] = [(nth % beside) * (tile + gap), Math.floor(nth / beside) * (tile + label + gap) + label];
    const down = Math.ceil(sheet.cells.length / Math.max(1, sheet.across));
    const size = Math.max(2, Math.min(24, Math.floor(tile / Math.max(1, sheet.across, down))));
    map.names.push([sheet.name, left, top - 5]);
    [...sheet.cells].forEach((letter, at) => {
      const row = sheet.row + Math.floor(at / sheet.across) * sheet.rows_per_cell;
      const column = sheet.column + (at % sheet.across) * sheet.columns_per_cell;
      map.squares.push({
        letter, size, across: sheet.across, x: left + (at % sheet.across) * size, y: top + Math.floor(at / sheet.across) * size,
        tasks: sheet.tasks && sheet.tasks[at], name: sheet.name,
        part: { sheet: sheet.sheet, row, column, rows: Math.min(sheet.rows_per_cell, sheet.row + sheet.rows - row), columns: Math.min(sheet.columns_per_cell, sheet.column + sheet.columns - column) },
      });
    });
  });
  const rows = Math.ceil(sheets.length / beside);
  map.high = rows * (tile + label) + (rows - 1) * gap;
}

function drawSquare(draw, colors, { letter, x, y, size }) {
  const inner = size - (size > 3 ? 1 : 0);
  const box = (color, from, high) => { draw.fillStyle = color; draw.fillRect(x + inner * from, y + inner * (1 - high) / 2, inner * (1 - 2 * from), inner * high); };
  box(colors[letter === 'c' ? 'D' : letter], 0, 1);
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
  const canvas = at('map');
  const style = getComputedStyle(canvas.parentElement);
  const wide = Math.floor(canvas.parentElement.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
  mapHigh = wide < 600 ? 200 : 260;
  if (map.inOrder) layOrder(wide); else layGroups(wide);
  const scale = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [wide * scale, Math.max(1, map.high) * scale];
  [canvas.style.width, canvas.style.height] = [`${wide}px`, `${Math.max(1, map.high)}px`];
  const draw = canvas.getContext('2d');
  draw.scale(scale, scale);
  const colors = { mark: css('--mark') };
  for (const letter of Object.keys(states)) colors[letter] = css(`--${letter}`);
  for (const square of map.squares) if (states[square.letter]) drawSquare(draw, colors, square);
  draw.fillStyle = css('--ink');
  draw.font = `${wide < 600 ? 10 : 12}px system-ui, sans-serif`;
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
  setText(at('map-where'), where);
  at('map-out').disabled = !part;
  setText(at('map-view'), map.inOrder ? at('map-view').dataset.group : 'Show in task order');
  if (!performance.getEntriesByName('map-drawn').length) performance.mark('map-drawn');
}

function choose(cell) {
  map.chosen = Math.max(0, Math.min(map.squares.length - 1, cell));
  const { letter, tasks, name, part } = map.squares[map.chosen];
  const state = states[letter] || 'not scheduled (symmetric to another frame)';
  const which = tasks && tasksOf(...tasks);
  const place = part && `${name} row ${span(part.row, part.rows)}, column ${span(part.column, part.columns)}`.trim();
  setText(at('map-cell'), map.inOrder ? `${which}: ${state}` : `${place}: ${state}${which ? `; ${which}` : ''}`);
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
  } catch (error) { setText(at('map-cell'), error.message); }
}

async function showTask(which) {
  const task = await ask(`/api/v1/runs/${run}/tasks/${which}`);
  const parts = [`Task ${number(task.task)}: ${task.state}`];
  if (task.count !== null) parts.push(`${BigInt(task.count).toLocaleString('en')} solutions`);
  if (task.workers.length) parts.push(`${task.count === null ? 'leased to' : 'counted by'} ${task.workers.join(', ')}`);
  if (task.accepted_ms_ago !== null) parts.push(`accepted ${moment(Date.now() - task.accepted_ms_ago)}`);
  if (task.count !== null) parts.push(task.confirmed_by ? `confirmed by ${task.confirmed_by}` : 'not rechecked');
  if (task.failed_attempts) parts.push(`${task.failed_attempts} failed attempts`);
  if (task.conflicting_counts.length) parts.push(`conflicting counts: ${task.conflicting_counts.join(', ')}`);
  parts.push(`${number(task.units)} units from ${number(task.first_unit)}`, `estimated cost: ${(task.cost / 1e6).toFixed(1)} core-seconds`);
  setText(at('map-cell'), parts.join(' · '));
}

async function refreshMap() {
  const { inOrder, part } = map;
  const query = part ? `?${new URLSearchParams(part)}` : '';
  const data = await ask(`/api/v1/runs/${run}/${inOrder ? 'map' : 'grid'}${query}`);
  if (inOrder === map.inOrder && part === map.part) { map.data = data; drawMap(); }
}

function wholeMap() {
  [map.part, map.chosen] = [null, -1];
  setText(at('map-cell'), map.hint);
  return refreshMap();
}

function startMap() {
  map.hint = at('map-cell').textContent;
  const canvas = at('map');
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
  at('map-out').addEventListener('click', () => wholeMap().catch(() => {}));
  at('map-view').addEventListener('click', () => { map.inOrder = !map.inOrder; wholeMap().catch(() => {}); });
  wholeMap().catch(() => {});
}
