// A coordinator with workers, for a browser to look at.
import { spawn, execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const programs = process.env.QUEENS_PROGRAMS ?? new URL('../../target/debug', import.meta.url).pathname;
const program = (name) => join(programs, name);
const browserPath = process.env.QUEENS_CHROMIUM ?? '/usr/bin/chromium';

export async function browser() {
  if (!existsSync(browserPath)) throw new Error(`there is no ${browserPath}: apt-get install chromium`);
  return chromium.launch({ executablePath: browserPath, args: ['--no-sandbox'] });
}

export class House {
  static async start(args) {
    const house = new House();
    house.dir = await mkdtemp(join(tmpdir(), 'queens-browser-'));
    house.started = [];
    house.lines = [];
    house.waiting = [];
    const here = !args.includes('--listen');
    house.places = here ? ['--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'] : [];
    house.args = ['--sync-ms', '200', '--data-dir', join(house.dir, 'data'), ...args];
    house.serve();
    const [, grpc] = await house.line(/listening on ([^ ]+): /);
    house.grpc = `http://${grpc}`;
    house.url = (await house.line(/dashboard at (.*)$/))[1];
    if (here) house.places = ['--listen', grpc, '--http', new URL(house.url).host];
    return house;
  }

  // Starts the coordinator; again, after `kill`, where it was.
  serve() { this.coordinator = this.run('coordinator', [...this.places, ...this.args]); }

  async kill() {
    const ended = new Promise((end) => this.coordinator.once('exit', end));
    this.coordinator.kill('SIGKILL');
    await ended;
  }

  run(name, args, env = {}) {
    const child = spawn(program(name), args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    this.started.push(child);
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        this.lines.push(line);
        this.waiting = this.waiting.filter((waits) => !waits(line));
      });
    }
    return child;
  }

  // The match of the first line that fits, said before or later.
  line(pattern) {
    const said = this.lines.map((line) => line.match(pattern)).find(Boolean);
    if (said) return said;
    return new Promise((found) => {
      this.waiting.push((line) => {
        const match = line.match(pattern);
        if (match) found(match);
        return match;
      });
    });
  }

  worker(name) {
    return this.run('worker', ['--coordinator', this.grpc, '--threads', '1', '--name', name,
      '--spool', join(this.dir, name)]);
  }

  async queensctl(args, env = {}) {
    const where = env.QUEENS_JOIN ? [] : ['--coordinator', this.grpc];
    const done = await promisify(execFile)(program('queensctl'), [...where, ...args], { env: { ...process.env, ...env } });
    return done.stdout.trim();
  }

  async stop() {
    for (const child of this.started) {
      const ended = new Promise((end) => child.once('exit', end));
      if (child.exitCode === null && child.signalCode === null) { child.kill('SIGKILL'); await ended; }
    }
    await rm(this.dir, { recursive: true, force: true });
  }
}
