// Measures the cost of open dashboards for a coordinator with --insecure: node viewers.js URL PID [VIEWERS] [SECONDS]
// Opens one page and one stream per viewer, like a browser, and reads every event. Prints the process's core time and
// memory without and with them.
import { readFile } from 'node:fs/promises';
import { setTimeout as pass } from 'node:timers/promises';

const [url, pid, viewers = '200', seconds = '30'] = process.argv.slice(2);

async function used() {
  const stat = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1].split(' ');
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  // 100 ticks per second on every Linux; fields 14 and 15 of proc(5).
  return { core: (Number(stat[11]) + Number(stat[12])) / 100, mib: Number(status.match(/VmRSS:\s+(\d+)/)[1]) / 1024, at: performance.now() / 1000 };
}

async function measure(what) {
  const before = await used();
  await pass(Number(seconds) * 1000);
  const after = await used();
  const part = ((after.core - before.core) / (after.at - before.at)) * 100;
  console.log(`${what}: ${part.toFixed(1)} % of a core, ${after.mib.toFixed(0)} MiB`);
  return { part, mib: after.mib };
}

const without = await measure('without viewers');
const run = (await (await fetch(`${url}/api/v1/status`)).json()).run;
let events = 0;
let bytes = 0;
const closing = new AbortController();
async function view() {
  await (await fetch(`${url}/runs/${run}`)).text();
  const stream = await fetch(`${url}/runs/${run}/events`, { signal: closing.signal });
  for await (const chunk of stream.body) {
    bytes += chunk.length;
    events += Buffer.from(chunk).includes('data: ') ? 1 : 0;
  }
}
const open = Array.from({ length: Number(viewers) }, () => view().catch((error) => { if (!closing.signal.aborted) throw error; }));
await pass(5000);
[events, bytes] = [0, 0];
const began = performance.now();
const during = await measure(`with ${viewers} viewers`);
const span = (performance.now() - began) / 1000;
closing.abort();
await Promise.allSettled(open);
console.log(`${(events / span / Number(viewers)).toFixed(2)} events per second and viewer, ${Math.round(bytes / Math.max(events, 1))} bytes each`);
console.log(`the viewers cost ${(during.part - without.part).toFixed(1)} % of a core and ${(during.mib - without.mib).toFixed(0)} MiB`);
