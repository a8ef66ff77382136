import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { type Program, Scope, tunnelThrough, until, type Via, within } from '../harness/index.ts';

/** Each beat takes 1 to 2 ms of processor time from the programs that carry it, and some tests take half a minute. In milliseconds. */
const BEAT_MS = 250;

/** A healthy tunnel to an echo, open since before the attack, and the programs that carry it. */
export class Bystander implements AsyncDisposable {
  readonly #tunnel: Socket;
  readonly #programs: readonly Program[];
  readonly #timer: NodeJS.Timeout;
  #beats = 0;
  /** Up to this beat, each beat is sent as soon as the last one's echo is back. */
  #wanted = 0;
  #waiting = false;
  #lost: string | undefined;

  constructor(tunnel: Socket, programs: readonly Program[]) {
    this.#tunnel = tunnel;
    this.#programs = programs;
    tunnel.on('data', (chunk: Buffer) => this.#receive(chunk)).resume();
    for (const event of ['end', 'close']) {
      tunnel.once(event, () => {
        this.#lost ??= 'its tunnel has ended';
      });
    }
    this.#timer = setInterval(() => this.#beat(), BEAT_MS);
  }

  /** Fails unless the tunnel still echoes and every program still runs. */
  async unharmed(): Promise<void> {
    const { tail } = this;
    for (const { name, running } of this.#programs) assert.ok(running, `${name} has ended${tail}`);
    const wanted = this.#beats + 2;
    this.#wanted = wanted;
    this.#beat();
    await until(() => this.#beats >= wanted, {
      what: () => `the bystander's echo${this.tail}`,
      hopeless: () => this.#lost,
    });
    for (const { logs, tail } of this.#programs) {
      assert.ok(!logs.some(({ msg }) => String(msg).startsWith('crashed')), tail);
    }
  }

  get tail(): string {
    return this.#programs.map(({ tail }) => tail).join('');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    this.#tunnel.destroy();
  }

  #beat(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    this.#tunnel.write(Buffer.of(this.#beats & 0xff));
  }

  #receive(chunk: Buffer): void {
    if (chunk.length !== 1 || chunk[0] !== (this.#beats & 0xff) || !this.#waiting) {
      this.#lost ??= `${chunk.toString('hex')} arrived for beat ${this.#beats}`;
      return;
    }
    this.#waiting = false;
    this.#beats++;
    if (this.#beats < this.#wanted) this.#beat();
  }
}

export async function bystander(
  scope: Scope,
  via: Via,
  destination: string,
  programs: readonly Program[],
): Promise<Bystander> {
  return scope.use(new Bystander(await tunnelThrough(scope, { via, destination }), programs));
}

/** Runs one attack as a subtest with a scope of its own. The bystander must be unharmed afterwards. */
export async function attack(
  t: TestContext,
  victim: Bystander,
  name: string,
  body: (scope: Scope) => Promise<void>,
): Promise<void> {
  await t.test(name, async () => {
    {
      await using scope = new Scope();
      await body(scope);
    }
    await victim.unharmed();
  });
}

/** Returns how many refusals a program has counted at one place. */
export async function refusals(program: Program, where: string): Promise<number> {
  const samples = await program.metric('isthmus_refused_total');
  return samples.get(`{where="${where}"}`) ?? 0;
}

/** Fails unless `act` makes a program refuse something at `where`, and its log has a line about that place. */
export async function refused(program: Program, where: string, act: () => Promise<void>): Promise<void> {
  const before = await refusals(program, where);
  await act();
  await until(async () => (await refusals(program, where)) > before, {
    what: () => `${program.name} to count a refusal at ${where}${program.tail}`,
  });
  // Of many refusals in a short time, only the first get a line each.
  const isLine = (line: Readonly<Record<string, unknown>>) => line.msg === 'refused' && line.where === where;
  await program.waitForLog(isLine, { what: `a line about a refusal at ${where}` });
}

/** Opens a plain connection, on which the test writes each byte. */
export async function raw(scope: Scope, via: { uds: string } | { port: number }): Promise<Socket> {
  const socket = 'uds' in via ? connect(via.uds) : connect(via.port, '127.0.0.1');
  scope.defer(() => socket.destroy());
  socket.on('error', () => {});
  const open = new Promise<void>((resolve, reject) => {
    socket.once('connect', () => resolve()).once('error', reject);
  });
  await within(open, { what: 'a connection' });
  return socket;
}

/** Returns everything that arrives until the other side ends or resets. */
export function saidUntilEnd(socket: Socket): Promise<string> {
  let said = '';
  socket.on('data', (chunk) => {
    said += chunk.toString('latin1');
  });
  const ended = new Promise<string>((resolve) => {
    socket.once('end', () => resolve(said)).once('close', () => resolve(said));
    if (socket.closed || socket.readableEnded) resolve(said);
  });
  socket.resume();
  return within(ended, {
    what: () => `the end of a connection that said ${JSON.stringify(said.slice(0, 200))}`,
  });
}
