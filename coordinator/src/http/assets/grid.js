// The map of tasks by what their units have in common: a sheet of A and C for each number of queens, or
// one of the first two queens. Entered cell by cell, down to one task. app.js draws them in their order.
'use strict';
let grid = null;
let gridWindow = null;
let gridChosen = -1;
// Where each cell is: its sheet, its place there, and its square on the canvas.
let squares = [];

function layGrid(wide) {
  const [sheets, gap, label] = [grid.sheets, 14, grid.sheets[0].name ? 18 : 0];
  const beside = sheets.length === 1 ? 1 : Math.max(2, Math.min(sheets.length, Math.floor(wide / 150)));
  const tile = Math.min(480, Math.floor((wide - gap * (beside - 1)) / beside));
  squares = [];
  const names = [];
  let [top, height] = [0, 0];
  sheets.forEach((sheet, number) => {
    if (number % beside === 0) { top += height; height = 0; }
    const left = (number % beside) * (tile + gap);
    const size = Math.max(2, Math.min(24, Math.floor(tile / Math.max(1, sheet.across))));
    names.push([sheet.name, left, top + label - 5]);
    for (let at = 0; at < sheet.cells.length; at++) {
      const [x, y] = [left + (at % sheet.across) * size, top + label + Math.floor(at / sheet.across) * size];
      squares.push({ sheet, at, x, y, size });
    }
    height = Math.max(height, label + Math.ceil(sheet.cells.length / Math.max(1, sheet.across)) * size + gap);
  });
  return [names, top + height];
}

function showGrid(next) {
  grid = next;
  const canvas = at('map');
  const wide = canvas.parentElement.clientWidth - 32;
  const [names_, height] = layGrid(wide);
  canvas.width = wide;
  canvas.height = Math.max(1, height);
  const draw = canvas.getContext('2d');
  const colours = {};
  for (const letter of Object.keys(names)) colours[letter] = css(`--${letter}`);
  for (const { sheet, at: place, x, y, size } of squares) {
    const colour = colours[sheet.cells[place]];
    if (!colour) continue;
    draw.fillStyle = colour;
    draw.fillRect(x, y, size - (size > 3 ? 1 : 0), size - (size > 3 ? 1 : 0));
  }
  draw.fillStyle = css('--ink');
  draw.font = '13px system-ui, sans-serif';
  for (const [name, x, y] of names_) draw.fillText(name, x, y);
  const chosen = squares[gridChosen];
  if (chosen) {
    draw.strokeStyle = css('--ink');
    draw.lineWidth = 2;
    draw.strokeRect(chosen.x, chosen.y, chosen.size, chosen.size);
  }
  const one = gridWindow ? grid.sheets[0] : null;
  const where = one ? `${one.name} rows ${span(one.row, one.rows)}, columns ${span(one.column, one.columns)}; ` : '';
  setText(at('map-where'), `${where}down: ${grid.rows_are}; across: ${grid.columns_are}`);
  at('map-out').disabled = !gridWindow;
  if (!performance.getEntriesByName('map-drawn').length) performance.mark('map-drawn');
}

function span(first, number) { return number > 1 ? `${first} to ${first + number - 1}` : `${first}`; }

// What a cell covers.
function part({ sheet, at: place }) {
  const row = sheet.row + Math.floor(place / sheet.across) * sheet.rows_per_cell;
  const column = sheet.column + (place % sheet.across) * sheet.columns_per_cell;
  return {
    sheet: sheet.sheet, row, column,
    rows: Math.min(sheet.rows_per_cell, sheet.row + sheet.rows - row),
    columns: Math.min(sheet.columns_per_cell, sheet.column + sheet.columns - column),
  };
}

function sayGrid(cell) {
  gridChosen = Math.max(0, Math.min(squares.length - 1, cell));
  const chosen = squares[gridChosen];
  const { row, rows, column, columns } = part(chosen);
  const tasks = chosen.sheet.tasks && chosen.sheet.tasks[chosen.at];
  const which = !tasks ? '' : tasks[0] === tasks[1] ? `; task ${tasks[0]}` : `; tasks ${tasks[0]} to ${tasks[1]}`;
  const state = names[chosen.sheet.cells[chosen.at]] || 'not counted: images of others';
  setText(at('map-cell'), `${chosen.sheet.name} row ${span(row, rows)}, column ${span(column, columns)}: ${state}${which}`);
  showGrid(grid);
}

async function closerGrid() {
  const chosen = squares[gridChosen];
  if (!chosen || !names[chosen.sheet.cells[chosen.at]]) return;
  const tasks = chosen.sheet.tasks && chosen.sheet.tasks[chosen.at];
  try {
    if (tasks && tasks[0] === tasks[1]) {
      await tellTask(tasks[0]);
    } else if (tasks && chosen.sheet.rows_per_cell === 1 && chosen.sheet.columns_per_cell === 1) {
      showOrder(true);
      zoomed = { first: tasks[0], tasks: tasks[1] - tasks[0] + 1 };
      await refreshZoom();
      say(0);
    } else {
      gridWindow = part(chosen);
      gridChosen = 0;
      await refreshGrid();
      sayGrid(0);
    }
  } catch (error) { setText(at('map-cell'), error.message); }
}

async function refreshGrid() {
  const wanted = gridWindow;
  const query = wanted ? `?${new URLSearchParams(wanted)}` : '';
  const next = await ask(`/api/v1/runs/${run}/grid${query}`);
  if (wanted === gridWindow && !inOrder) showGrid(next);
}

async function wholeGrid() {
  gridWindow = null;
  gridChosen = -1;
  setText(at('map-cell'), '');
  await refreshGrid();
}

function gridCellUnder(event) {
  const scale = at('map').width / at('map').clientWidth;
  const [x, y] = [event.offsetX * scale, event.offsetY * scale];
  return squares.findIndex((square) => x >= square.x && x < square.x + square.size && y >= square.y && y < square.y + square.size);
}

function gridKey(event) {
  if (!squares.length) return;
  const across = squares[Math.max(0, gridChosen)].sheet.across;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
  if (event.key in steps) { sayGrid(gridChosen + steps[event.key]); event.preventDefault(); }
  if (event.key === 'Enter') closerGrid();
  if (event.key === 'Escape') wholeGrid();
}
