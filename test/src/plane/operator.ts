import { run, type Terminal } from '@isthmus/isthmus';
import { type Program, type Scope, startCommand } from '../harness/index.ts';
import { commandOf } from '../harness/runtime.ts';

/** Default time for each member's answer. */
const PATIENT = ['--timeout', '30s'];

/** What a command printed, and how it ended. */
export interface Said {
  readonly status: number | null;
  readonly out: string;
  readonly err: string;
}

/** The program that a command asks. */
export type Asked = Pick<Program, 'adminPort'> & Partial<Pick<Program, 'adminSocket'>>;

function placeOf({ adminPort, adminSocket }: Asked): string {
  return adminSocket === undefined ? `127.0.0.1:${adminPort}` : `unix:${adminSocket}`;
}

function patient(args: readonly string[]): readonly string[] {
  return args.includes('--timeout') ? args : [...args, ...PATIENT];
}

/** Runs `isthmus` against a program's admin port, in this process: a new process would take longer than its answer. */
export async function isthmus(program: Asked, ...args: string[]): Promise<Said> {
  const session = new Session(program, patient(args));
  return { status: await session.done, out: session.out, err: session.err };
}

/** Runs the same command, and returns its JSON document. */
export async function asked<T>(program: Asked, ...args: string[]): Promise<T & { readonly status: number | null }> {
  const { status, out, err } = await isthmus(program, ...args, '-o', 'json');
  if (out === '') throw new Error(`isthmus ${args.join(' ')} ended with ${status}: ${err}`);
  return { ...(JSON.parse(out) as T), status };
}

/** A command that runs until it is interrupted. */
export class Session {
  out = '';
  err = '';
  readonly done: Promise<number>;
  readonly #interrupt = new AbortController();

  constructor(program: Asked, args: readonly string[]) {
    const terminal: Terminal = {
      args: [...args, '--address', placeOf(program)],
      env: {},
      out: (text) => {
        this.out += text;
      },
      err: (text) => {
        this.err += text;
      },
      interactive: false,
      colours: false,
      columns: () => 120,
      interrupted: this.#interrupt.signal,
    };
    this.done = run(terminal);
  }

  interrupt(): Promise<number> {
    this.#interrupt.abort();
    return this.done;
  }
}

/** Starts the program itself, as people run it. */
export function startIsthmus(scope: Scope, program: Program, ...args: string[]): Program {
  return startCommand(scope, [...commandOf('isthmus'), ...patient(args), '--address', placeOf(program)]);
}
