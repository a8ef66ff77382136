import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { command } from './command.mjs';
import { ROOT } from './workspace.mjs';

/** They end what hangs, and judge no speed. */
const START_MS = 240_000;
const DIAL_MS = 60_000;
const END_MS = 120_000;
/** The answer of the demo's destination. */
const ANSWER = /Hello from the demo destination/;

/**
 * Starts the demo, pastes each of its curl lines into a shell, checks the dials, and ends it as Ctrl-C does.
 * Resolves with everything that went wrong, and with the demo's output if anything did.
 */
export async function smoke(argv, gateways) {
  const demo = new Demo(argv);
  const failures = [];
  try {
    const lines = await demo.waitForLines(/^curl /, gateways, START_MS);
    const places = lines.flatMap((line) => line.match(/\S*isthmus-demo-[^/\s]+/) ?? []);
    for (const line of lines) {
      const { status, output } = await command(['bash', '-c', line], { timeout: DIAL_MS });
      if (status !== 0 || !ANSWER.test(output))
        failures.push(`this line failed with status ${status}: ${line}\n${output}`);
    }
    await demo.waitForLines(/→.*ms/, gateways, DIAL_MS);
    const status = await demo.interrupt();
    if (status !== 0) failures.push(`it ended with status ${status} after SIGINT, not 0`);
    failures.push(...(await leftOvers(places)));
  } catch (error) {
    failures.push(error.message);
  } finally {
    demo.kill();
  }
  return failures.length === 0 ? [] : [...failures, `It had printed:\n${demo.lines.join('\n')}`];
}

/** A running demo, in its own process group, as in a terminal. */
class Demo {
  lines = [];
  #child;
  #ended;
  #waiting = new Set();

  constructor([program, ...args]) {
    this.#child = spawn(program, args, { cwd: ROOT, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        this.lines.push(line);
        for (const look of this.#waiting) look();
      });
    }
    this.#ended = new Promise((resolve) => {
      this.#child.once('error', () => resolve(127));
      this.#child.once('close', (status, signal) => resolve(signal ?? status));
    });
  }

  /** Resolves with the first `wanted` lines that match, once there are that many. */
  waitForLines(pattern, wanted, deadline) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = this.lines.filter((line) => pattern.test(line));
        if (found.length >= wanted) finish(() => resolve(found.slice(0, wanted)));
      };
      const finish = (settle) => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        settle();
      };
      const what = `${wanted} of the lines ${pattern}`;
      const timer = setTimeout(
        () => finish(() => reject(new Error(`it did not print ${what} in ${deadline / 1000} s`))),
        deadline,
      );
      this.#ended.then((status) =>
        finish(() => reject(new Error(`it ended with status ${status} before it printed ${what}`))),
      );
      this.#waiting.add(look);
      look();
    });
  }

  /** Does what Ctrl-C does: sends SIGINT to the whole group. Resolves with the exit status. */
  async interrupt() {
    process.kill(-this.#child.pid, 'SIGINT');
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(() => resolve(`none within ${END_MS / 1000} s`), END_MS);
    });
    const status = await Promise.race([this.#ended, late]);
    clearTimeout(timer);
    return status;
  }

  kill() {
    try {
      process.kill(-this.#child.pid, 'SIGKILL');
    } catch {
      // It is gone, as it should be.
    }
  }
}

/** Reports directories that were not removed, and processes that still name one (only on Linux: elsewhere there is no /proc). */
async function leftOvers(places) {
  const files = places.filter((place) => existsSync(place)).map((place) => `${place} was not removed`);
  if (!existsSync('/proc/self/cmdline')) return files;
  const processes = readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .map((pid) => ({ pid, words: commandLine(pid) }))
    .filter(({ words }) => places.some((place) => words.includes(place)))
    .map(({ pid, words }) => `process ${pid} still runs: ${words}`);
  return [...files, ...processes];
}

function commandLine(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}
