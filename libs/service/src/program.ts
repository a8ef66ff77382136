import { setDefaultHighWaterMark } from 'node:stream';
import type { FlagTable, ProgramFlags, Values } from '@isthmus/flags';
import { FlagError, type FlagInForce, flagsInForce, helpText, parseFlags } from '@isthmus/flags';
import { bufferSizes, within } from '@isthmus/runtime';
import { type Host, processHost } from './host.ts';
import { startFailure } from './start-failure.ts';
import { VERSION } from './version.ts';

/** The log of a program. A pino logger is one. */
export interface ProgramLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  fatal(fields: object, message: string): void;
}

/** A started program. */
export interface Running {
  /** Reports not ready, and keeps serving: balancers notice a moment later. */
  leave?(): void;
  /** Accepts nothing new, tells its peers to move, and resolves when everything running has finished. */
  drain(): Promise<void>;
  /** Ends what is left and closes every listener. */
  close(): Promise<void>;
  /** Cuts every tunnel now, because the process is about to exit: what a kernel does to its sockets looks like an orderly end. */
  cut?(): void;
}

export interface Context<L extends ProgramLog> {
  readonly log: L;
  readonly version: string;
  /** The flags in force, without secrets. */
  readonly flags: readonly FlagInForce[];
  /** Calls `handler` for each SIGHUP, to reopen rotated files. */
  onHangup(handler: () => void): void;
}

export interface ProgramOptions<T extends FlagTable, L extends ProgramLog> extends ProgramFlags<T> {
  /** Called once the flags are known to be valid. */
  log(values: Values<T>): L;
  /** Resolves when all listeners are up. An error ends the program; `start` must then leave nothing running. */
  start(values: Values<T>, context: Context<L>): Promise<Running>;
}

/** How long closing may take after the drain. */
const CLOSE_MS = 5000;

/** How long the other ends of tunnels that were cut have to hear of it, in milliseconds. */
const CUT_MS = 100;

/**
 * Runs a program: flags, start, the signal to stop, drain, close, exit. The status is 0 after an orderly stop, 1 after bad flags, a
 * failed start or a crash, and 128 + the signal's number after a second signal.
 */
export async function runProgram<T extends FlagTable, L extends ProgramLog>(
  options: ProgramOptions<T, L>,
  host: Host = processHost(),
): Promise<void> {
  setDefaultHighWaterMark(false, bufferSizes.stream);
  host.onCrash((error, origin) => crash(options.name, host, undefined, error, origin));
  const read = readFlags(options, host);
  if (!read) return;
  const { values, warnings, set } = read;
  const log = options.log(values);
  host.onCrash((error, origin) => crash(options.name, host, log, error, origin));
  for (const warning of warnings) log.warn({}, warning);

  let running: Running | undefined;
  let status = 0;
  const cut = (number: number) => {
    status = 128 + number;
    running?.cut?.();
  };
  const stopped = firstSignal(host, log, cut);
  const context = {
    log,
    version: VERSION,
    flags: flagsInForce(options.flags, values, set),
    onHangup: (handler: () => void) => host.onHangup(handler),
  };
  const started = await Promise.race([options.start(values, context), stopped]).catch((error) => {
    fail(host, options.name, startFailure(error, options.flags, values));
    return undefined;
  });
  if (started === undefined) return;
  // A signal before all listeners are up: nothing to drain yet, and the half-started parts have no owner to close them.
  if ('signal' in started) return host.exit(128 + started.number);
  running = started;
  const { signal } = await stopped;
  log.info({ signal }, 'stopping');
  await lameDuck(running, values);
  const drained = await stop(running, drainLimit(values), log);
  host.exit(drained || status);
}

/** Keeps serving until balancers have had time to notice that it is not ready. */
async function lameDuck(running: Running, values: Readonly<Record<string, unknown>>): Promise<void> {
  const delayMs = (values['shutdown-delay-duration'] as number | undefined) ?? 0;
  if (delayMs === 0 || !running.leave) return;
  running.leave();
  await new Promise((resolve) => setTimeout(resolve, delayMs));
}

/** Reads and checks the command line. Returns undefined if the program should not start. */
function readFlags<T extends FlagTable>(program: ProgramFlags<T>, host: Host) {
  try {
    const { values, warnings, set } = parseFlags(program.flags, host.args, host.env);
    const answer = values.help ? helpText(program) : values.version ? `${program.name} ${VERSION}\n` : undefined;
    if (answer !== undefined) {
      host.out(answer);
      host.exit(0);
      return undefined;
    }
    const all = [...warnings];
    program.check(values, (warning) => all.push(warning));
    return { values, warnings: all, set };
  } catch (error) {
    if (!(error instanceof FlagError)) throw error;
    fail(host, program.name, error.message);
    return undefined;
  }
}

function fail(host: Host, name: string, problem: string): void {
  host.err(`${name}: ${problem}\n`);
  host.exit(1);
}

interface Stop {
  readonly signal: string;
  readonly number: number;
}

/** Resolves at the first SIGTERM or SIGINT. The second cuts what is left and ends the process. */
function firstSignal(host: Host, log: ProgramLog, cut: (number: number) => void): Promise<Stop> {
  return new Promise((resolve) => {
    let seen = 0;
    host.onSignal((signal, number) => {
      seen++;
      resolve({ signal, number });
      if (seen === 1) return;
      const exit = () => host.exit(128 + number);
      if (seen > 2) return exit();
      log.warn({ signal }, 'second signal: cutting every tunnel and stopping');
      setTimeout(exit, CUT_MS);
      cut(number);
    });
  });
}

/**
 * How long draining may take, in milliseconds. A program without the flag drains until its tunnels are done, as upstream's agent does.
 * The sender of the signal can cut that short with a second one or with SIGKILL.
 */
function drainLimit(values: Readonly<Record<string, unknown>>): number {
  return (values['graceful-shutdown-timeout'] as number | undefined) ?? Number.POSITIVE_INFINITY;
}

/** Drains, closes, and returns the exit status. */
async function stop(running: Running, drainMs: number, log: ProgramLog): Promise<number> {
  let status = 0;
  const failed = (what: string) => (err: unknown) => {
    status = 1;
    log.error({ err }, `${what} failed`);
    return true;
  };
  // As in upstream, 0 turns the graceful shutdown off.
  if (drainMs > 0 && !(await within(running.drain(), drainMs).catch(failed('draining')))) {
    log.warn({ drainMs }, 'the time for draining is over: closing the remaining tunnels');
  }
  if (!(await within(running.close(), CLOSE_MS).catch(failed('closing')))) {
    log.warn({ closeMs: CLOSE_MS }, 'closing takes too long: exiting now');
  }
  return status;
}

/** Reports a crash in the log, or on standard error if there is no log yet. */
function crash(name: string, host: Host, log: ProgramLog | undefined, error: unknown, origin: string): void {
  try {
    if (log) log.fatal({ err: error }, `crashed: ${origin}`);
    else host.err(`${name}: crashed: ${origin}: ${error instanceof Error ? error.stack : String(error)}\n`);
  } finally {
    host.exit(1);
  }
}
