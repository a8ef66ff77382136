import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync, readSync } from 'node:fs';
import { rm, statfs, writeFile } from 'node:fs/promises';
import test from 'node:test';
import { promisify } from 'node:util';
import {
  agentPortFlags,
  commandOf,
  echo,
  type Front,
  freePort,
  healthFlags,
  isUp,
  newTrust,
  onDeno,
  type Scope,
  scoped,
  startAgent,
  startCommand,
  tempDir,
  until,
} from '../harness/index.ts';
import { carries, dial } from './dials.ts';
import { tinyDisk, unmountable } from './tiny-disk.ts';

const run = promisify(execFile);

interface Logging {
  /** Opens tunnels, each of which is logged. */
  dials(count: number): Promise<void>;
  readonly program: Front['program'];
}

/** Starts a proxy-server that logs to a file, and an agent, and waits until both are ready. */
async function loggingTo(scope: Scope, log: string): Promise<Logging> {
  const trust = await newTrust(scope);
  const [agentPort, health] = [await freePort(), await healthFlags()];
  const uds = `${trust.dir}/callers.sock`;
  const own = { 'uds-name': uds, 'server-port': 0, 'log-format': 'json', v: 5 };
  const program = startCommand(scope, ['sh', '-c', 'exec "$@" 2>"$LOG"', 'sh', ...commandOf('proxy-server')], {
    flags: { ...health, ...own, ...(await agentPortFlags(trust, agentPort)) },
    env: { LOG: log },
    healthPort: health['health-port'],
  });
  await isUp(program);
  await startAgent(scope, trust, agentPort);
  await program.waitReady();
  const { authority } = await echo(scope);
  return {
    program,
    async dials(count) {
      for (let i = 0; i < count; i++) {
        const tunnel = await dial(scope, { connect: { uds } } as Front, 'connect', authority);
        await carries(tunnel);
        tunnel.destroy();
      }
    },
  };
}

/** Returns the time of a line, or undefined if the line is not complete. */
function timeOf(line: string): string | undefined {
  try {
    return JSON.parse(line).time;
  } catch {
    return undefined;
  }
}

const unfull = spawnSync('test', ['-c', '/dev/full']).status === 0 ? false : 'there is no /dev/full';
const noFifo = spawnSync('mkfifo', ['--version']).status === 0 ? false : 'there is no mkfifo';

test(
  'a program whose log device is full goes on serving',
  { skip: unfull },
  scoped(async (scope) => {
    const { program, dials } = await loggingTo(scope, '/dev/full');
    await dials(20);
    assert.ok(program.running);
  }),
);

test(
  'a log whose disk was full goes on when there is room again',
  { skip: unmountable },
  scoped(async (scope) => {
    const disk = await tinyDisk(scope, 64);
    const filler = `${disk}/filler`;
    await writeFile(filler, Buffer.alloc(48 * 1024));
    const log = `${disk}/log`;
    const { program, dials } = await loggingTo(scope, log);
    const full = async () => (await statfs(disk)).bfree === 0;
    await until(async () => (await full()) || (await dials(10)), { what: 'the disk to be full' });
    await dials(20);
    assert.ok(program.running);
    await rm(filler);
    await dials(1);
    const lines = readFileSync(log, 'utf8').trimEnd().split('\n');
    const times = lines.map(timeOf).filter((time) => time !== undefined);
    assert.deepEqual(times, [...times].sort());
    // Deno does not report how much of a write reached the disk before it was full, so one line may be there twice, once cut off.
    assert.ok(lines.length - times.length <= (onDeno ? 1 : 0), lines.join('\n'));
  }),
);

/** A named pipe, read only when asked. */
class Pipe {
  readonly path: string;
  text = '';
  #fd: number | undefined;

  constructor(path: string) {
    this.path = path;
    this.open();
  }

  open(): void {
    this.#fd = openSync(this.path, constants.O_RDWR | constants.O_NONBLOCK);
  }

  /** Reads everything that is in the pipe. */
  read(): void {
    const chunk = Buffer.alloc(65_536);
    try {
      for (;;) this.text += chunk.subarray(0, readSync(this.#fd as number, chunk)).toString();
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'EAGAIN');
    }
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  /** How many lines of the gateway report an established dial. Each line must be complete. */
  get established(): number {
    const lines = this.text.split('\n').slice(0, -1);
    const isDial = ({ role, msg }: Record<string, unknown>) => role === 'gateway' && msg === 'dial established';
    return lines.filter((line) => isDial(JSON.parse(line))).length;
  }
}

async function pipeOf(scope: Scope): Promise<Pipe> {
  const path = `${await tempDir(scope)}/log`;
  await run('mkfifo', [path]);
  const pipe = new Pipe(path);
  scope.defer(() => pipe.close());
  return pipe;
}

test(
  'a log whose reader stalls blocks nothing, and loses nothing that fits into a mebibyte',
  { skip: noFifo },
  scoped(async (scope) => {
    const pipe = await pipeOf(scope);
    const { program, dials } = await loggingTo(scope, pipe.path);
    await dials(200);
    assert.ok(program.running);
    const all = () => {
      pipe.read();
      return pipe.established === 200;
    };
    await until(all, { what: () => `200 dials in the log, not ${pipe.established}` });
  }),
);

test(
  "a program survives the end of its log's reader, and logs again when there is a new one",
  { skip: noFifo },
  scoped(async (scope) => {
    const pipe = await pipeOf(scope);
    const { program, dials } = await loggingTo(scope, pipe.path);
    pipe.close();
    await dials(20);
    assert.ok(program.running);
    pipe.open();
    const all = () => {
      pipe.read();
      return pipe.established === 20;
    };
    await until(all, { what: () => `20 dials in the log, not ${pipe.established}` });
  }),
);
