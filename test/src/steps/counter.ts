// Preloaded into a program (`node --import`). On each SIGUSR2 it writes what the program did since the one before to a file of its own in
// $STEPS_DIR: a number that counts up, behind the process' id.
import { createHook } from 'node:async_hooks';
import { renameSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector';

/** The file of a program's nth count, from 0. */
export function countFile(directory: string, pid: number, n: number): string {
  return `${directory}/${pid}-${n}.json`;
}

/** What a program did between two counts. */
export interface Counted {
  /** Calls of all functions: this project's, its dependencies' and Node's own. */
  calls: number;
  promises: number;
  timers: number;
  ticks: number;
}

const { STEPS_DIR: directory } = process.env;
if (directory !== undefined) countInto(directory);

function countInto(directory: string): void {
  const session = new Session();
  session.connect();
  // The answers of a session in its own process come before `post` returns.
  session.post('Profiler.enable');
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  const made: Record<string, number> = {};
  const init = (_id: number, type: string) => {
    made[type] = (made[type] ?? 0) + 1;
  };
  createHook({ init }).enable();
  let n = 0;
  process.on('SIGUSR2', () => {
    const { PROMISE: promises = 0, Timeout: timers = 0, TickObject: ticks = 0 } = made;
    const file = countFile(directory, process.pid, n++);
    writeFileSync(`${file}.part`, JSON.stringify({ calls: takeCalls(session), promises, timers, ticks }));
    renameSync(`${file}.part`, file);
    for (const type of Object.keys(made)) delete made[type];
    // Not what counting itself calls.
    takeCalls(session);
  });
}

/** The calls since the last time. */
function takeCalls(session: Session): number {
  let calls = 0;
  session.post('Profiler.takePreciseCoverage', (error, coverage) => {
    if (error) throw error;
    for (const { url, functions } of coverage.result)
      if (url !== import.meta.url) for (const { ranges } of functions) calls += ranges[0]?.count ?? 0;
  });
  return calls;
}
