import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { createServer as createHttp2, type ServerHttp2Stream } from 'node:http2';
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import type { Writable } from 'node:stream';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  goMissing,
  type Member,
  type PeerDial,
  type PeerVia,
  type Program,
  type Scope,
  SLOW_TESTS,
  scoped,
  source,
  startPeerDial,
  summaryOf,
  until,
} from '../harness/index.ts';
import { hubPlane, wholeAgain } from '../plane/hub-plane.ts';
import { writeEgressConfigs } from './rig.ts';

const KILLS = SLOW_TESTS ? 5 : 3;

const MiB = 1 << 20;

/** Of a port-forward, in bytes: so much goes between two kills, and the rest after the last one. */
const PORTION = (SLOW_TESTS ? 147 : 6) * MiB;
const FORWARDED = SLOW_TESTS ? 1024 * MiB : (KILLS + 2) * PORTION;

/** Between two lines of a log or watch, in milliseconds. */
const LINE_EVERY = 20;

/** In milliseconds. After 30 s of silence, a client that watches asks whether its connection lives. A busy machine needs some of it. */
const LONGEST_PAUSE = 20_000;

/** What users of kubectl do, and the destinations that they do it with. */
class Users {
  /** Emits `end` when the destinations shall say the last line. */
  readonly #end = new EventEmitter().setMaxListeners(0);
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  end(): void {
    this.#end.emit('end');
  }

  /** A shell that shows each line that is typed. */
  shell(): Promise<string> {
    return this.#listen(
      createServer((socket) => {
        const typed = createInterface({ input: socket });
        typed.on('line', (line) => socket.write(`${line}\n`));
        this.#end.once('end', () => {
          typed.close();
          socket.end('end\n');
        });
      }),
    );
  }

  /** A log that grows. */
  log(): Promise<string> {
    return this.#listen(createServer((socket) => socket.once('data', () => this.#lines(socket))));
  }

  /** A server whose answers go on, over HTTP/2. */
  watch(): Promise<string> {
    const server = createHttp2();
    server.on('stream', (stream: ServerHttp2Stream) => {
      stream.respond({ ':status': 200 });
      this.#lines(stream);
    });
    // HTTP/2 servers speak first, and Go's client loses what arrives before it has noted the connection: this one waits for the preface.
    return this.#listen(createServer((socket) => socket.once('readable', () => server.emit('connection', socket))));
  }

  #lines(to: Writable): void {
    let next = 0;
    const timer = setInterval(() => to.write(`${next++}\n`), LINE_EVERY);
    to.once('close', () => clearInterval(timer));
    this.#end.once('end', () => {
      clearInterval(timer);
      to.end('end\n');
    });
  }

  async #listen(server: ReturnType<typeof createServer>): Promise<string> {
    server.on('connection', (socket: Socket) => {
      socket.on('error', () => {});
      this.#scope.defer(() => socket.destroy());
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#scope.defer(() => server.close());
    return `127.0.0.1:${(server.address() as { port: number }).port}`;
  }
}

/** How many lines a user has read. */
function linesOf({ lines }: Program): number {
  const last = lines.findLast((line) => line.startsWith('line '));
  return Number(last?.slice('line '.length) ?? 0);
}

test(
  `exec, logs -f, a watch and a port-forward of ${FORWARDED / MiB} MiB notice nothing but pauses when their hub is killed ${KILLS} times`,
  { skip: goMissing() || redisMissing(), timeout: 540_000 },
  scoped(async (scope) => {
    const plane = await hubPlane(scope, { hubs: 2 });
    const users = new Users(scope);
    const configs = await writeEgressConfigs(plane.trust, plane.ways);
    const server = { config: configs.get('HTTP CONNECT over mTLS') as string };
    const vias: readonly PeerVia[] = [{ uds: plane.ways.grpc.uds }, ...(SLOW_TESTS ? [server] : [])];
    const use = (via: PeerVia, does: NonNullable<PeerDial['do']>, dest: string) =>
      startPeerDial(scope, { via, do: does, dest, timeout: '5m' });
    const [shell, log, watch] = await Promise.all([users.shell(), users.log(), users.watch()]);
    const readers = await Promise.all(
      vias.flatMap((via) => [use(via, 'type', shell), use(via, 'follow', log), use(via, 'watch', watch)]),
    );
    const file = await source(scope, FORWARDED, { asked: true, portion: PORTION });
    const forwards = await Promise.all(vias.map((via) => use(via, 'read', file.authority)));
    const goOn = async (what: string) => {
      for (const reader of readers) {
        const before = linesOf(reader);
        const hopeless = () => (reader.running ? undefined : `it has ended${reader.tail}`);
        await until(() => linesOf(reader) > before + 2, { what: `more lines ${what}`, hopeless });
      }
    };
    await goOn('before');
    const all = readers.length + forwards.length;
    await until(async () => (await plane.gateway.tunnels()).length === all, { what: `${all} tunnels` });
    const [first, second] = plane.hubs as [Member, Member];
    // The first kill brings all tunnels to one hub. Each of the others hits them all.
    for (let kill = 0; kill <= KILLS; kill++) {
      const hub = kill % 2 === 0 ? first : second;
      if (kill > 0) file.release();
      await hub.kill();
      await goOn(`after kill ${kill}`);
      await hub.restart();
      await wholeAgain(plane);
    }
    const moves = (await plane.gateway.tunnels()).map(({ resume }) => resume?.moves ?? 0);
    assert.ok(moves.length === all && Math.min(...moves) >= KILLS, `moves: ${moves}`);
    users.end();
    file.release();
    for (const reader of readers) {
      const { results } = await summaryOf(reader);
      const { error, pauseMs = 0 } = results[0] ?? {};
      assert.equal(error, '', reader.tail);
      assert.ok(pauseMs < LONGEST_PAUSE, `a pause of ${pauseMs} ms`);
    }
    for (const forward of forwards) {
      const { results } = await summaryOf(forward, 240_000);
      const { error, bytes, sha256 } = results[0] ?? {};
      assert.deepEqual({ error, bytes, sha256 }, { error: '', bytes: FORWARDED, sha256: file.sha256 });
    }
  }),
);
