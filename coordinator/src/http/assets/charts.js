// Charts of a run's history, with abbreviated numbers and local times.
'use strict';
const charts = {};
let history_ = null;
let period = 0;

const UNITS = ['million', 'billion', 'trillion', 'quadrillion', 'quintillion', 'sextillion', 'septillion'];

// Formats a number such as 400 billion; less than a million in digits.
function abbreviated(value) {
  if (value < 1e6) return value.toLocaleString('en', { maximumSignificantDigits: 4 });
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log10(value) / 3 + 1e-9) - 2);
  return `${(value / 1000 ** (unit + 2)).toLocaleString('en', { maximumSignificantDigits: 4 })} ${UNITS[unit]}`;
}

const CLOCK = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };

// Formats a time in the reader's time zone, with the date unless it is today.
function moment(ms) {
  const when = new Date(ms);
  const clock = when.toLocaleTimeString([], CLOCK);
  return when.toDateString() === new Date().toDateString() ? clock : `${when.toLocaleDateString([], { day: 'numeric', month: 'short' })}, ${clock}`;
}

function drawChart(id, series, data, bands = [], zero = !bands.length) {
  const box = byId(id);
  const size = { width: Math.max(200, box.clientWidth), height: matchMedia('(max-width: 44rem)').matches ? 100 : 160 };
  if (!box.clientWidth) return;
  if (charts[id]?.series.length === data.length && charts[id].width === size.width) { charts[id].setData(data); return; }
  charts[id]?.destroy();
  const axis = { stroke: css('--soft'), grid: { stroke: css('--line'), width: 1 }, font: '12px system-ui, sans-serif' };
  charts[id] = new uPlot({
    ...size,
    // Room for half of the last label of the time axis.
    padding: [null, 36, null, null],
    bands,
    legend: { show: false },
    cursor: { show: false },
    scales: zero ? { y: { range: (_, low, high) => [0, (high || 1) * 1.05] } } : {},
    axes: [
      { ...axis, size: 28, space: 70, values: (_, ticks, axis_, space, step) => ticks.map((tick) => tickTime(tick, step)) },
      { ...axis, size: 88, space: 32, values: (_, ticks) => ticks.map(abbreviated) },
    ],
    series: [{}, ...series.map((line) => ({ points: { show: false }, ...line }))],
  }, data, box);
}

function tickTime(seconds, step) {
  const when = new Date(seconds * 1e3);
  if (step < 60) return when.toLocaleTimeString([], { ...CLOCK, second: '2-digit' });
  if (step < 86400 && (when.getHours() || when.getMinutes())) return when.toLocaleTimeString([], CLOCK);
  return when.toLocaleDateString([], { day: 'numeric', month: 'short' });
}

function drawCharts() {
  if (!history_ || history_.unix_seconds.length < 2) return;
  byId('charts').hidden = false;
  drawSpark();
  const all = history_.unix_seconds;
  // The axis begins at the first count, unless nothing was counted yet.
  const begin = all[Math.max(0, history_.solutions_per_second.findIndex((rate) => rate > 0) - 1)];
  const since = Math.max(begin, period ? all.at(-1) - period : 0);
  const from = Math.min(all.findIndex((time) => time >= since), all.length - 2);
  const column = (name) => history_[name].slice(from);
  const times = column('unix_seconds');
  const known = history_.reference.source === 'published';
  const [line, edge] = [{ stroke: css('--C'), width: 2 }, { stroke: css('--D'), width: 1 }];
  const estimates = [times, column('estimate_high'), column('estimate_low'), column('estimate')];
  const series = [edge, edge, line];
  if (known) { series.push({ stroke: css('--frame'), width: 2, dash: [6, 4] }); estimates.push(times.map(() => history_.reference.solutions)); }
  setText(byId('chart-estimate-h'), `Estimated total with its 95 % interval${known ? '; dashed: the published count' : ''}`);
  // One value makes no line.
  const some = column('estimate').filter((value) => value !== null).length > 1;
  // Decides about the widths of the others.
  byId('chart-estimate').parentElement.hidden = !some;
  if (some) drawChart('chart-estimate', series, estimates, [{ series: [1, 2], fill: css('--d') }]);
  drawRates(times, column('solutions_per_second'), from);
  drawChart('chart-workers', [{ stroke: css('--C'), width: 2, fill: css('--d') }], [times, column('workers')]);
}

// Draws the rates of the machines as stacked areas, with a legend of their names.
function drawRates(times, all, from) {
  const machines = history_.machines.map(({ name, solutions_per_second: rates }) => ({ name, rates: rates.slice(from) }));
  const tops = [];
  machines.forEach(({ rates }, place) => tops.push(rates.map((rate, index) => rate + (place ? tops[place - 1][index] : 0))));
  const hue = (place) => css(`--m${place}`);
  // The highest first: each later area covers the lower part of the one before.
  const lines = tops.map((top, place) => ({ stroke: hue(place), width: 1, fill: hue(place) })).reverse();
  const known = machines.length > 1;
  const list = machines.map(({ name }, place) => {
    const item = Object.assign(document.createElement('li'), { textContent: name });
    const key = Object.assign(document.createElement('span'), { className: 'key' });
    key.style.background = hue(place);
    item.prepend(key);
    return item;
  });
  byId('chart-rate-legend').replaceChildren(...(known ? list : []));
  const total = { stroke: css('--ink'), width: 1 };
  drawChart('chart-rate', known ? [...lines, total] : [{ stroke: css('--D'), width: 2, fill: css('--d') }], known ? [times, ...tops.reverse(), all] : [times, all]);
}

// Draws a small chart of the rate in the last hour, next to its number.
function drawSpark() {
  const { unix_seconds: times, solutions_per_second: rates } = history_;
  const first = Math.max(times[0], times.at(-1) - 3600);
  const [long, high] = [Math.max(1, times.at(-1) - first), Math.max(1, ...rates.slice(times.findIndex((time) => time >= first)))];
  const points = times.map((time, index) => [(time - first) / long * 120, 24 - rates[index] / high * 24]);
  byId('recent-rate').setAttribute('points', points.filter(([x]) => x >= 0).map((point) => point.map((part) => part.toFixed(1)).join()).join(' '));
}

async function refreshCharts() {
  history_ = await fetchJson(`/api/v1/runs/${run}/history`);
  drawCharts();
}

function redrawCharts() {
  for (const id of Object.keys(charts)) { charts[id].destroy(); delete charts[id]; }
  drawCharts();
}

function startCharts() {
  const choices = [...document.querySelectorAll('[data-span]')];
  for (const choice of choices) choice.addEventListener('click', () => {
    period = Number(choice.dataset.span);
    for (const other of choices) other.setAttribute('aria-pressed', String(other === choice));
    drawCharts();
  });
  refreshCharts().catch(() => {});
}
