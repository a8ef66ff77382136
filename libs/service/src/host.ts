import { constants } from 'node:os';
import process from 'node:process';

/** The process as a program sees it. */
export interface Host {
  /** The command line without the program's own name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  out(text: string): void;
  err(text: string): void;
  exit(status: number): void;
  /** Called for each SIGTERM and SIGINT. */
  onSignal(handler: (signal: string, number: number) => void): void;
  /** Called for each SIGHUP. Without a handler SIGHUP ends the process, as in upstream. */
  onHangup(handler: () => void): void;
  /** Called for uncaught errors. A later handler replaces an earlier one. */
  onCrash(handler: (error: unknown, origin: string) => void): void;
}

/** Returns the real host, on Node and on Deno. */
export function processHost(): Host {
  let onCrash: (error: unknown, origin: string) => void = () => {};
  process.on('uncaughtException', (error) => onCrash(error, 'uncaught error'));
  process.on('unhandledRejection', (reason) => onCrash(reason, 'unhandled rejection'));
  return {
    args: process.argv.slice(2),
    env: process.env,
    out: (text) => process.stdout.write(text),
    err: (text) => process.stderr.write(text),
    exit: (status) => process.exit(status),
    onSignal(handler) {
      for (const signal of ['SIGTERM', 'SIGINT'] as const) {
        process.on(signal, () => handler(signal, constants.signals[signal]));
      }
    },
    onHangup(handler) {
      process.on('SIGHUP', handler);
    },
    onCrash(handler) {
      onCrash = handler;
    },
  };
}
