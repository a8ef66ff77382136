import { writeSync } from 'node:fs';
import { constants } from 'node:os';
import process from 'node:process';
import { setDefaultHighWaterMark } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import {
  FlagError,
  type FlagInForce,
  type FlagTable,
  flagsInForce,
  helpText,
  listenersOf,
  type ProgramFlags,
  parseFlags,
  type Values,
} from '@isthmus/flags';
import { bufferSizes, memoryLimit, within } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { SERVICE } from './defaults.ts';

/** The version of all programs: the one in package.json. */
export const VERSION = '0.1.0';

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
  /** Resolves when the program is to stop by itself, with the reason. It then drains as after a signal, and its status is 1. */
  readonly mustEnd?: Promise<Error>;
  /** Cuts every tunnel now, because the process is about to exit: what a kernel does to its sockets looks like an orderly end. */
  cut?(): void;
}

export interface Context<L extends ProgramLog> {
  readonly log: L;
  /** The flags in force, without secrets. */
  readonly flags: readonly FlagInForce[];
}

interface ProgramOptions<T extends FlagTable, L extends ProgramLog> extends ProgramFlags<T> {
  /** Called once the flags are known to be valid. */
  log(values: Values<T>): L;
  /** Whether it carries tunnels: V8 then saves processor time, otherwise memory. Default: it does. */
  readonly carries?: boolean;
  /** Resolves when all listeners are up. An error ends the program; `start` must then leave nothing running. */
  start(values: Values<T>, context: Context<L>): Promise<Running>;
}

/**
 * Runs a program: flags, start, the signal to stop, drain, close, exit. The status is 0 after an orderly stop, 1 after bad flags, a
 * failed start, a crash or an end of its own, and 128 + the signal's number after a second signal.
 */
export async function runProgram<T extends FlagTable, L extends ProgramLog>(
  options: ProgramOptions<T, L>,
): Promise<void> {
  setDefaultHighWaterMark(false, bufferSizes.stream);
  Buffer.poolSize = SERVICE.poolBytes;
  tellV8(options.carries ?? true);
  let crashLog: ProgramLog | undefined;
  process.on('uncaughtException', (error) => crash(options.name, crashLog, error, 'uncaught error'));
  process.on('unhandledRejection', (reason) => crash(options.name, crashLog, reason, 'unhandled rejection'));
  const { values, warnings, set } = readFlags(options);
  const log = options.log(values);
  crashLog = log;
  for (const warning of warnings) log.warn({}, warning);

  let running: Running | undefined;
  let status = 0;
  const cut = (number: number) => {
    status = 128 + number;
    running?.cut?.();
  };
  const stopped = firstSignal(log, cut);
  const context = { log, flags: flagsInForce(options.flags, values, set) };
  const started = await Promise.race([options.start(values, context), stopped]).catch((error) =>
    fail(options.name, startFailure(error, options.flags, values)),
  );
  // A signal before all listeners are up: nothing to drain yet, and the half-started parts have no owner to close them.
  if ('signal' in started) process.exit(128 + started.number);
  running = started;
  const why = await Promise.race([stopped, ...(running.mustEnd ? [running.mustEnd] : [])]);
  if (why instanceof Error) {
    status = 1;
    log.error({ text: why.message }, 'stopping');
  } else log.info({ signal: why.signal }, 'stopping');
  await lameDuck(running, values);
  const drained = await stop(running, drainLimit(values), log);
  process.exit(drained || status);
}

/** Sets V8's flags as the program begins. Without the quick compiler, on Node 22, V8 keeps its own counts. Deno passes all of this over. */
function tellV8(carries: boolean): void {
  const memory = memoryLimit();
  const isLittle = !carries || (memory > 0 && memory <= SERVICE.littleMemoryBytes);
  // Freed by the thread that compiles, what each compilation used waits behind the next ones: 30 MB after some hundred dials.
  for (const flag of isLittle ? ['--no-maglev', '--optimize-for-size'] : ['--no-maglev-destroy-on-background'])
    setFlagsFromString(flag);
  if (!carries || (memory > 0 && memory < SERVICE.ampleMemoryBytes)) return;
  setFlagsFromString(`--heap-growing-percent=${SERVICE.heapGrowingPercent}`);
  if (Number.parseInt(process.versions.v8, 10) < SERVICE.quickCompilerV8) return;
  setFlagsFromString(`--invocation-count-for-maglev=${SERVICE.quickCompileCalls}`);
  setFlagsFromString(`--minimum-invocations-after-ic-update=${SERVICE.quickCompileCalls}`);
}

/** Keeps serving until balancers have had time to notice that it is not ready. */
async function lameDuck(running: Running, values: AnyValues): Promise<void> {
  const delayMs = (values['shutdown-delay-duration'] as number | undefined) ?? 0;
  if (delayMs === 0 || !running.leave) return;
  running.leave();
  await new Promise((resolve) => setTimeout(resolve, delayMs));
}

/** Reads and checks the command line. Ends the process if the program should not start. */
function readFlags<T extends FlagTable>(program: ProgramFlags<T>) {
  try {
    const { values, warnings, set } = parseFlags(program.flags, process.argv.slice(2), process.env);
    const answer = values.help ? helpText(program) : values.version ? `${program.name} ${VERSION}\n` : undefined;
    if (answer !== undefined) {
      writeAll(process.stdout.fd, answer);
      process.exit(0);
    }
    const all = [...warnings];
    program.check(values, (warning) => all.push(warning));
    return { values, warnings: all, set };
  } catch (error) {
    if (error instanceof FlagError) return fail(program.name, error.message);
    // A disk may be full.
    if (error instanceof Error && 'syscall' in error) return fail(program.name, inWords(error));
    throw error;
  }
}

/** Writes before the process exits. @throws Error */
function writeAll(descriptor: number, text: string): void {
  for (let left = Buffer.from(text); left.length > 0; ) left = left.subarray(writeSync(descriptor, left));
}

function fail(name: string, problem: string): never {
  process.stderr.write(`${name}: ${problem}\n`);
  process.exit(1);
}

interface Stop {
  readonly signal: string;
  readonly number: number;
}

/** Resolves at the first SIGTERM or SIGINT. The second cuts what is left and ends the process. */
function firstSignal(log: ProgramLog, cut: (number: number) => void): Promise<Stop> {
  return new Promise((resolve) => {
    let seen = 0;
    const came = (signal: NodeJS.Signals) => {
      const number = constants.signals[signal];
      seen++;
      resolve({ signal, number });
      if (seen === 1) return;
      const exit = () => process.exit(128 + number);
      if (seen > 2) return exit();
      log.warn({ signal }, 'second signal: cutting every tunnel and stopping');
      setTimeout(exit, SERVICE.cutMs);
      cut(number);
    };
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => came(signal));
  });
}

/**
 * How long draining may take, in milliseconds, by upstream's flag for servers or ours for agents. An agent without it drains until its
 * tunnels are done, as upstream's does. The sender of the signal can cut that short with a second one or with SIGKILL.
 */
function drainLimit(values: AnyValues): number {
  const limit = values['graceful-shutdown-timeout'] ?? values['drain-timeout'];
  return (limit as number | undefined) ?? Number.POSITIVE_INFINITY;
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
  if (!(await within(running.close(), SERVICE.closeMs).catch(failed('closing')))) {
    log.warn({ closeMs: SERVICE.closeMs }, 'closing takes too long: exiting now');
  }
  return status;
}

/** Reports a crash in the log, or on standard error if there is no log yet. */
function crash(name: string, log: ProgramLog | undefined, error: unknown, origin: string): void {
  try {
    if (log) log.fatal({ err: error }, `crashed: ${origin}`);
    else process.stderr.write(`${name}: crashed: ${origin}: ${error instanceof Error ? error.stack : String(error)}\n`);
  } finally {
    process.exit(1);
  }
}

type AnyValues = Readonly<Record<string, unknown>>;

const NO_ADDRESS = 'this machine has no such address';
const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'something already listens there',
  EACCES: 'permission denied',
  EADDRNOTAVAIL: NO_ADDRESS,
  // Deno's code for EADDRNOTAVAIL.
  EINVAL: NO_ADDRESS,
  ENOTFOUND: 'there is no such name',
  ENOENT: 'there is no such directory',
};

/** Returns why a program did not start, as one line that names the flag if a listener failed. */
export function startFailure(error: unknown, table: FlagTable, values: AnyValues): string {
  if (error instanceof FlagError) return error.message;
  const failure = listenFailure(error);
  if (failure) return describe(failure, table, values);
  // A bug in the program, so its location is what matters.
  const isBug = error instanceof TypeError || error instanceof ReferenceError;
  const text = isBug ? (error.stack ?? error.message) : inWords(error);
  return `cannot start: ${isBug ? text : text.replaceAll(/(?<!\s)\s*\n\s*/g, ' ')}`;
}

interface ListenFailure extends NodeJS.ErrnoException {
  /** An IP address, or the path of a unix socket. */
  readonly address?: string;
  /** Absent if any port would do, -1 for a unix socket. */
  readonly port?: number;
  /** Name that could not be resolved, in place of the address. */
  readonly hostname?: string;
}

/** Returns the failed `listen`, or the failed lookup of a name to listen on, that caused an error. */
function listenFailure(error: unknown): ListenFailure | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { syscall = '' } = cause as ListenFailure;
    if (['listen', 'bind', 'getaddrinfo'].includes(syscall)) return cause;
  }
  return undefined;
}

function describe(failure: ListenFailure, table: FlagTable, values: AnyValues): string {
  const { code, address, port = 0, hostname, message } = failure;
  const reason = REASONS[code ?? ''] ?? message;
  const flag = flagBehind(failure, reason === NO_ADDRESS, table, values);
  // Our own text about what is at a unix socket's path.
  if (code === undefined) return `${flag ? `--${flag}: ` : 'cannot start: '}${message}`;
  const host = address?.includes(':') ? `[${address}]` : (address ?? hostname);
  const place = port > 0 ? `${host}:${port}` : host;
  return `${flag ? `--${flag}: ` : ''}cannot listen on ${place}: ${reason} (${code})`;
}

/** Returns the flag to change: that of the address if the address is bad, otherwise that of the port or of the unix socket. */
function flagBehind(
  failure: ListenFailure,
  badAddress: boolean,
  table: FlagTable,
  values: AnyValues,
): string | undefined {
  const { address, port = 0, hostname } = failure;
  if (port < 0) return ['uds-name', 'admin-uds-name'].find((name) => values[name] === address);
  const listeners = listenersOf(table, values);
  if (hostname !== undefined) return listeners.find(({ host }) => host === hostname)?.bind;
  const listener = listeners.find((one) => one.port === port);
  return badAddress ? listener?.bind : listener?.flag;
}

/** What a program has started, to be closed in reverse order, also when a later part fails to start. */
export class Closing {
  readonly #steps: (() => unknown)[] = [];

  defer(step: () => unknown): void {
    this.#steps.push(step);
  }

  /** Runs every step, even after one fails. @throws the first failure */
  async close(): Promise<void> {
    const failures: unknown[] = [];
    for (const step of this.#steps.splice(0).reverse()) {
      try {
        await step();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** Starts a program's parts. If one fails, those already started are closed. */
  static async guard<T>(start: (closing: Closing) => Promise<T>): Promise<T> {
    const closing = new Closing();
    try {
      return await start(closing);
    } catch (error) {
      await closing.close().catch(() => {});
      throw error;
    }
  }
}
