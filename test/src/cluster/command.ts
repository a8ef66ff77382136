import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';

const DEADLINE_MS = 60_000;
/** How much of a failed command's output its error shows, in characters. */
const SHOWN = 3000;

/** Aborted when this process is told to end. Every command ends with it. */
export const ended = new AbortController();

export interface CommandOptions {
  /** What the command reads. */
  readonly input?: string;
  /** Milliseconds until it is killed; default a minute. */
  readonly deadline?: number;
  readonly cwd?: string;
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface Ended {
  /** -1 if a signal ended it. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

export type Command = readonly string[];

/** Runs a command to its end, whatever its status. If it takes too long, it is killed with all that it has started. */
export async function run([program = '', ...args]: Command, options: CommandOptions = {}): Promise<Ended> {
  const { input, deadline = DEADLINE_MS, cwd, env } = options;
  ended.signal.throwIfAborted();
  const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, detached: true });
  const status = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code ?? -1));
  });
  const kill = () => killGroup(child.pid);
  const timer = setTimeout(kill, deadline);
  ended.signal.addEventListener('abort', kill);
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  try {
    const [code, stdout, stderr] = await Promise.all([status, text(child.stdout), text(child.stderr)]);
    return { status: code, stdout, stderr };
  } finally {
    clearTimeout(timer);
    ended.signal.removeEventListener('abort', kill);
  }
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Returns what a command prints to stdout. @throws if it fails, with the end of its output */
export async function must(command: Command, options?: CommandOptions): Promise<string> {
  const { status, stdout, stderr } = await run(command, options);
  if (status === 0) return stdout;
  const why = status === -1 ? 'was killed, or took too long' : `ended with ${status}`;
  throw new Error(`${command.join(' ').slice(0, 300)} ${why}: ${`${stdout}\n${stderr}`.trim().slice(-SHOWN)}`);
}
