import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Command } from './command.ts';

/** A program of the node that runs as a unit of systemd would: with a log, and started again if it was told to. */
export class Daemon {
  readonly #command: Command;
  readonly #log: number;
  #child: ChildProcess;

  constructor(command: Command, log: string) {
    mkdirSync(dirname(log), { recursive: true });
    this.#command = command;
    this.#log = openSync(log, 'a');
    this.#child = this.#start();
  }

  /** Throws why it is no use to wait for it: it has ended. */
  check(): void {
    const { exitCode, signalCode } = this.#child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`${this.#command[0]} ended: ${exitCode ?? signalCode}`);
  }

  /** As `systemctl restart`. */
  async restart(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await ended;
    this.#child = this.#start();
  }

  #start(): ChildProcess {
    const [program, ...args] = this.#command;
    return spawn(program, args, { stdio: ['ignore', this.#log, this.#log] }).on('error', () => {});
  }
}
