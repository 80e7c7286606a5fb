// A coordinator with workers for browser tests.
import { spawn, execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { chromium, firefox } from 'playwright-core';

const programs = process.env.QUEENS_PROGRAMS ?? new URL('../../target/debug', import.meta.url).pathname;
const program = (name) => join(programs, name);
const browserPath = process.env.QUEENS_CHROMIUM ?? '/usr/bin/chromium';
// Limit after which a test reports that a browser hangs, in milliseconds. Playwright's is too short for a busy machine.
export const patience = 600_000;
export const firefoxPath = process.env.QUEENS_FIREFOX ?? '/usr/bin/firefox-esr';

export async function browser() {
  if (!existsSync(browserPath)) throw new Error(`${browserPath} not found: apt-get install chromium`);
  // The system may choose a port that the browser blocks because another protocol uses it.
  const ports = '1719,1720,1723,2049,3659,4045,4190,5060,5061,6000,6566,6665,6666,6667,6668,6669,6679,6697,10080';
  const args = ['--no-sandbox', `--explicitly-allowed-ports=${ports}`];
  return chromium.launch({ executablePath: browserPath, args, timeout: patience });
}

// Launches Debian's Firefox. It does not know all commands of Playwright 1.65.
export function launchFirefox() {
  return firefox.launch({ channel: 'moz-firefox', executablePath: firefoxPath, timeout: patience });
}

export class Cluster {
  static async start(args) {
    const cluster = new Cluster();
    cluster.dir = await mkdtemp(join(tmpdir(), 'queens-browser-'));
    cluster.started = [];
    cluster.lines = [];
    cluster.waiting = [];
    const here = !args.includes('--listen');
    cluster.places = here ? ['--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'] : [];
    cluster.connection = ['--data-dir', join(cluster.dir, 'data')];
    cluster.args = ['--sync-ms', '200', ...cluster.connection, ...args];
    cluster.serve();
    const [, grpc] = await cluster.line(/listening on ([^ ]+): /);
    cluster.url = (await cluster.line(/dashboard at (.*)$/))[1];
    if (here) cluster.places = ['--listen', grpc, '--http', new URL(cluster.url).host];
    return cluster;
  }

  // Starts the coordinator, or restarts it on the same port after `kill`.
  serve() { this.coordinator = this.run('coordinator', [...this.places, ...this.args]); }

  async kill() {
    const ended = new Promise((end) => this.coordinator.once('exit', end));
    this.coordinator.kill('SIGKILL');
    await ended;
  }

  run(name, args) {
    const child = spawn(program(name), args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.started.push(child);
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        this.lines.push(line);
        this.waiting = this.waiting.filter((waits) => !waits(line));
      });
    }
    return child;
  }

  // Returns the match of the first matching line, past or future.
  line(pattern) {
    const past = this.lines.map((line) => line.match(pattern)).find(Boolean);
    if (past) return past;
    return new Promise((found) => {
      this.waiting.push((line) => {
        const match = line.match(pattern);
        if (match) found(match);
        return match;
      });
    });
  }

  worker(name) {
    return this.run('worker', [...this.connection, '--threads', '1', '--name', name, '--spool', join(this.dir, name)]);
  }

  // Lets an honest worker and a lying client count the same board; the liar changes the counts of an honest run.
  async disagree(python) {
    const truth = await Cluster.start(this.args.slice(4));
    const [counts, secret] = ['counts', 'join'].map((name) => join(this.dir, name));
    try {
      truth.worker('truth');
      await truth.line(/N = \d+: [\d,]+ solutions/);
      await writeFile(counts, await truth.queensctl(['export', 'last']));
    } finally { await truth.stop(); }
    const made = JSON.parse(await this.queensctl(['token', 'create', '--role', 'worker', '--name', 'other', '--json']));
    await writeFile(secret, made.join);
    const liar = new URL('../foreign/liar.py', import.meta.url).pathname;
    this.started.push(spawn(python, [liar, this.places[1], secret, counts], { stdio: 'ignore' }));
    this.worker('honest');
  }

  async queensctl(args) {
    const done = await promisify(execFile)(program('queensctl'), [...this.connection, ...args]);
    return done.stdout.trim();
  }

  // Returns a one-time login link of an operator.
  async link() { return this.queensctl(['dashboard']); }

  async stop() {
    for (const child of this.started) {
      const ended = new Promise((end) => child.once('exit', end));
      if (child.exitCode === null && child.signalCode === null) { child.kill('SIGKILL'); await ended; }
    }
    await rm(this.dir, { recursive: true, force: true });
  }
}

// Opens an address. A login link has a button, which a used one has not.
export async function visit(page, url) {
  await page.goto(url);
  const isLink = url.includes('/login/') && await page.locator('input[name=token]').count() === 0;
  if (isLink) await page.getByRole('button', { name: 'Log in' }).click();
}
