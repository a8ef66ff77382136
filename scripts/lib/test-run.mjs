import { spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { seconds } from './command.mjs';
import { ALL_FILES_DONE, REPORTS, TOGETHER } from './test-reporter.mjs';
import { TURNS } from './test-turns.mjs';

const REPORTER = fileURLToPath(new URL('test-reporter.mjs', import.meta.url));

/** How many characters of a process's output are kept, for the report of its failure. */
const MOST_OUTPUT = 64 * 1024;
const FAILED_TESTS = 'it exited with status 1';
const ENDED_EARLY = 'it ended before its tests were done';

/** The run of some test files in one process. */
export class TestRun {
  #files;
  #events;
  #state;
  #start = performance.now();

  /** @param place a path for its own files, which it overwrites */
  constructor(files, place) {
    this.#files = files;
    this.#events = `${place}.ndjson`;
    this.#state = `${place}.state`;
    for (const path of [this.#events, this.#state]) rmSync(path, { force: true });
  }

  get ms() {
    return performance.now() - this.#start;
  }

  /** The index of the file that runs, or ran last. Behind the last one if all are done. */
  get at() {
    const state = existsSync(this.#state) ? readFileSync(this.#state, 'utf8') : '';
    return state === ALL_FILES_DONE ? this.#files.length : Math.max(0, this.#files.indexOf(state));
  }

  /**
   * Resolves with `{ parts, problem, errors, output }`: the reports of each file that ran, what went wrong with the process apart from
   * failed tests, what tests caused after their end, and the last of what was printed.
   */
  async result(timeoutMs) {
    const { problem, output } = await this.#run(timeoutMs);
    const text = existsSync(this.#events) ? readFileSync(this.#events, 'utf8') : '';
    const reports = text.split('\n').filter(Boolean).map(JSON.parse);
    return {
      parts: this.#byFile(reports),
      problem: this.#problem(problem, reports),
      errors: reports.filter(({ outcome }) => outcome === 'error').map(({ why }) => why),
      output,
    };
  }

  /** Returns what went wrong with the process apart from failed tests, by how it ended. */
  #problem(ended, reports) {
    const alone = this.#files.length === 1;
    const done = alone ? reports.some(({ outcome }) => outcome === 'end') : this.at === this.#files.length;
    if (!done) return ended || ENDED_EARLY;
    // Exit status 1 without a failed test means that something threw outside of the tests.
    const failed = reports.some(({ outcome, why }) => outcome === 'failed' && why !== '');
    return failed && ended === FAILED_TESTS ? '' : ended;
  }

  /** Returns `{ file, reports, ms }` for each file. A file that runs alone has no marks. */
  #byFile(reports) {
    if (this.#files.length === 1) return [{ file: this.#files[0], reports, ms: this.ms }];
    const marks = reports.flatMap(({ outcome }, index) => (outcome === 'file' ? [index] : []));
    return marks.flatMap((from, index) => {
      const to = marks[index + 1] ?? reports.length;
      const { name: file, at } = reports[from];
      const ms = (reports[to]?.at ?? Date.now()) - at;
      return file === '' ? [] : [{ file, reports: reports.slice(from + 1, to), ms }];
    });
  }

  /** Resolves with the last characters that the process printed, and with what went wrong, if anything did. */
  #run(timeoutMs) {
    return new Promise((resolve) => {
      const options = [`--test-reporter=${REPORTER}`, '--test-reporter-destination=stdout'];
      const what = this.#files.length === 1 ? this.#files : [TOGETHER, this.#state, ...this.#files];
      // With the first set, the file would report to a test that runs this. Nx sets the second, and tests read what programs print. The
      // third makes each start of Node slower by half, and tests trust their own authorities. A test that runs tests has its turn already.
      const { NODE_TEST_CONTEXT, FORCE_COLOR, NODE_EXTRA_CA_CERTS, [TURNS]: _, ...inherited } = process.env;
      const env = { ...inherited, [REPORTS]: this.#events };
      const child = spawn(process.execPath, [...options, ...what], { env, stdio: ['ignore', 'pipe', 'pipe'] });
      let output = '';
      let late = false;
      const timer = setTimeout(() => {
        late = true;
        child.kill('SIGKILL');
      }, timeoutMs);
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding('utf8').on('data', (text) => {
          output = (output + text).slice(-MOST_OUTPUT);
        });
      }
      // Not `close`: a program that the file left behind may keep its output open.
      child.once('exit', (status, signal) => {
        clearTimeout(timer);
        const ended = signal ? `it was ended by ${signal}` : status === 0 ? '' : `it exited with status ${status}`;
        setImmediate(resolve, { problem: late ? `it still ran after ${seconds(timeoutMs)}` : ended, output });
      });
    });
  }
}
