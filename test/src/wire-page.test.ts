import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { type ControlMessage, LinkServer, TRANSPORT } from '@isthmus/transport';
import { DialError, type DialRequest, planeEvents, TUNNEL } from '@isthmus/tunnel';
import { FrameType, HpackDecoder, PREFACE, WIRE } from '@isthmus/wire';
import {
  connectThrough,
  newTrust,
  nextChunk,
  ROOT,
  Scope,
  startServer,
  type Trust,
  until,
  within,
} from './harness/index.ts';
import { head } from './hostile/links.ts';

const PAGE = readFileSync(`${ROOT}docs/WIRE.md`, 'utf8');
const ACK = 1;

interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

interface Example extends Frame {
  readonly by: 'hub' | 'agent';
  /** What its first line says of the payload's length. */
  readonly length: number;
  /** What its comments say: the type and flags, then the payload's fields. */
  readonly notes: readonly string[];
}

/** Returns a part of the page, without its heading. */
function part(heading: string): string {
  const [, text = ''] = PAGE.split(`\n${heading}\n`);
  const [own = ''] = text.split(/\n##/);
  assert.notEqual(own, '', `WIRE.md has a part ${heading}`);
  return own;
}

function bytesOf(text: string): Buffer {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[0-9a-f]+/g) ?? [];
  return Buffer.concat(
    tokens.map((token) => (token.startsWith('"') ? Buffer.from(JSON.parse(token)) : Buffer.from(token, 'hex'))),
  );
}

/** The frames of a part, in the page's order. */
function framesOf(heading: string): readonly Example[] {
  const [, block = ''] = /```text\n([\s\S]*?)```/.exec(part(heading)) ?? [];
  const frames: Example[] = [];
  for (const line of block.trimEnd().split('\n')) {
    const [, said = '', note] = /^(.*?)(?: +# (.*))?$/.exec(line) ?? [];
    const [, by, rest = ''] = /^(hub|agent)? +(.*)$/.exec(said) ?? [];
    const bytes = bytesOf(rest);
    if (by) {
      const [length, type, flags] = [bytes.readUIntBE(0, 3), bytes.readUInt8(3), bytes.readUInt8(4)];
      const frame = { by: by as Example['by'], length, type, flags, stream: bytes.readUInt32BE(5) };
      frames.push({ ...frame, payload: Buffer.alloc(0), notes: note === undefined ? [] : [note] });
      continue;
    }
    const last = frames.pop();
    assert.ok(last, `${heading}: a payload has its frame's line before it`);
    const notes = note === undefined ? last.notes : [...last.notes, note];
    frames.push({ ...last, payload: Buffer.concat([last.payload, bytes]), notes });
  }
  return frames;
}

const PARTS = ['### A link begins', '### A dial', '### A refusal', '### An attach', '### The end'] as const;

function encoded({ type, flags, stream, payload }: Frame): Buffer {
  const bytes = Buffer.alloc(9);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes[3] = type;
  bytes[4] = flags;
  bytes.writeUInt32BE(stream, 5);
  return Buffer.concat([bytes, payload]);
}

function fieldsOf(payload: Buffer): Readonly<Record<string, string>> {
  return Object.fromEntries(new HpackDecoder(WIRE.headBytes).decode(payload) ?? []);
}

/** A mark, as the page's table has it. */
function markOf(payload: Buffer): Readonly<Record<string, number>> {
  const names = ['taken', ...['final', 'ask'].filter((_, bit) => (payload.readUInt8(0) >> bit) & 1)];
  assert.equal(payload.length, 1 + 6 * names.length);
  return Object.fromEntries(names.map((name, at) => [name, payload.readUIntBE(1 + 6 * at, 6)]));
}

/** The head of an HTTP/1.1 message of the page. */
function message(first: string): string {
  const [, text] = new RegExp(`\`\`\`http\n(${first}[\\s\\S]*?\n\n)\`\`\``).exec(PAGE) ?? [];
  assert.ok(text, `WIRE.md shows ${first}`);
  return text.replaceAll('\n', '\r\n');
}

function linesOf(text: string): ReadonlyMap<string, string> {
  const fields = text.trim().split('\r\n').slice(1);
  return new Map(fields.map((line) => line.split(': ', 2) as [string, string]));
}

describe('docs/WIRE.md', () => {
  for (const heading of PARTS)
    test(`${heading.slice(4)}: each frame holds what the page says of it`, () => {
      const frames = framesOf(heading);
      assert.ok(frames.length > 0);
      for (const { length, type, payload, notes } of frames) {
        const [kind = '', ...said] = notes;
        assert.equal(payload.length, length, `${kind} ${said}`);
        const [name = ''] = kind.split(',');
        assert.equal(type, FrameType[name as keyof typeof FrameType], kind);
        if (type === FrameType.HEADERS) {
          const fields = fieldsOf(payload);
          for (const note of said) {
            const [, field = '', value] = /^(:?[^:]+): (.*)$/.exec(note) ?? [];
            assert.equal(fields[field], value, note);
          }
        }
        if (type === FrameType.MARK) {
          const mark = Object.entries(markOf(payload));
          assert.equal(mark.map((field) => field.join(': ')).join(', '), said.join());
        }
      }
    });

  test('its limits are those of the code', () => {
    const units: Readonly<Record<string, number>> = { '': 1, s: 1000, KiB: 1024, MiB: 1024 * 1024 };
    const all: Readonly<Record<string, Readonly<Record<string, number>>>> = { TRANSPORT, TUNNEL, WIRE };
    const rows = [...part('## Limits').matchAll(/^\| [^|]+ \| (\d+) ?(\w*) \| `(\w+)\.(\w+)` \|$/gm)];
    assert.ok(rows.length > 10);
    for (const [row, count, unit = '', object = '', name = ''] of rows)
      assert.equal(Number(count) * (units[unit] ?? Number.NaN), all[object]?.[name], row);
  });

  test('an agent of ours understands the frames of its hub', async () => {
    await using scope = new Scope();
    const [hub, socket] = await pair(scope);
    const heard: ControlMessage[] = [];
    let asked: DialRequest | undefined;
    const link = new LinkServer({
      ...{ socket, peer: 'hub hub-1', role: 'agent' as const, events: planeEvents() },
      receive: (said) => void heard.push(said),
      dial(request) {
        asked = request;
        return Promise.reject(new DialError('connection_refused', 'nobody'));
      },
    });
    scope.defer(() => link.destroy(new Error('test over')));
    const frames = [...framesOf('### A link begins'), ...framesOf('### A dial')].filter(({ by }) => by === 'hub');
    hub.write(Buffer.concat([PREFACE, ...frames.map(encoded)]));
    const dial = await until(() => asked, { what: 'the dial' });
    const { id, tenant, destination, session } = dial;
    const { host, port } = destination;
    const gateway = dial.resumeOffer?.gatewayInstance;
    assert.deepEqual(
      { id, tenant, host, port, session, gateway },
      {
        ...{ id: 'a046f171f28e7549', tenant: 'default', host: '10.0.0.1', port: 443, session: '0d4c30399fd26b06' },
        gateway: 'a12b1739b628abda',
      },
    );
    assert.deepEqual(heard, [JSON.parse(framesOf('### A link begins').at(-1)?.payload.toString() ?? '')]);
  });

  test("a server's hub and gateway understand an agent that sends the page's frames and no others", async () => {
    await using scope = new Scope();
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust, { 'server-id': 'hub-1' });
    const first = await PagesAgent.begin(scope, trust, server.agentPort);
    await server.program.waitReady();

    const tunnel = connectThrough(scope, { via: server.connect, destination: '10.0.0.1:443', early: 'ping\n' });
    await first.play('### A dial');
    const caller = await tunnel;
    assert.equal(caller.status, 200);
    if (caller.head.length > 0) caller.socket.unshift(caller.head);
    assert.equal(String(await nextChunk(caller.socket, 'the answer')), 'pong\n');

    const refused = connectThrough(scope, { via: server.connect, destination: '10.0.0.1:444' });
    await first.play('### A refusal');
    const { status, headers } = await refused;
    assert.equal(status, 502);
    assert.match(headers['proxy-status'] ?? '', /error=connection_refused; details="dial tcp 10\.0\.0\.1:444: /);

    const second = await PagesAgent.begin(scope, trust, server.agentPort);
    first.lose();
    caller.socket.write('more\n');
    await second.play('### An attach');
    assert.equal(String(await nextChunk(caller.socket, 'what came after the attach')), 'done\n');
    const ended = once(caller.socket.end().resume(), 'end');
    await second.play('### The end');
    await within(ended, { what: "the tunnel's end at its caller" });
    const cut = await server.program.metric('isthmus_tunnels_cut_total');
    assert.deepEqual(new Set(cut.values()), new Set([0]));
  });
});

/** Two connected sockets. */
async function pair(scope: Scope): Promise<readonly [Socket, Socket]> {
  const listener = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const near = connect((listener.address() as { port: number }).port, '127.0.0.1');
  const [far] = (await once(listener, 'connection')) as [Socket];
  listener.close();
  for (const socket of [near, far]) {
    socket.on('error', () => {});
    scope.defer(() => socket.destroy());
  }
  return [near, far];
}

/** Fields whose values differ from run to run. Parameters of `isthmus-resume` and `isthmus-attach`, too. */
const VARIES = ['isthmus-dial', 'isthmus-session', 'isthmus-deadline'];

function comparable(payload: Buffer): Readonly<Record<string, string>> {
  const fields = Object.entries(fieldsOf(payload)).map(([name, value]) => {
    if (VARIES.includes(name)) return [name, '*'];
    return [name, value.replace(/\b(gateway|number)=\w+/g, '$1=*')];
  });
  return Object.fromEntries(fields);
}

/** The hub has given up an attach, because this process was too slow: it asks again on another stream. */
class GivenUp extends Error {}

/** One link of an agent that knows nothing but the page: it sends the frames there, and compares those of the hub with them. */
class PagesAgent {
  readonly #socket: Socket;
  #unread: Buffer = Buffer.alloc(0);
  #begun = false;
  readonly #frames: Frame[] = [];
  /** The live stream for the page's. */
  readonly #streams = new Map<number, number>([
    [0, 0],
    [1, 1],
  ]);

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  static async begin(scope: Scope, trust: Trust, port: number): Promise<PagesAgent> {
    const { cert, key } = await trust.agents.client('edge-1');
    const socket = connectTls({
      ...{ port, host: '127.0.0.1', servername: 'localhost', ALPNProtocols: ['http/1.1', 'h2'] },
      ...{ ca: readFileSync(trust.agents.cert), cert: readFileSync(cert), key: readFileSync(key) },
    });
    socket.on('error', () => {});
    scope.defer(() => socket.destroy());
    await within(once(socket, 'secureConnect'), { what: 'a TLS handshake' });
    assert.equal(socket.alpnProtocol, 'http/1.1');
    // A busy machine may be late with a PING.
    socket.write(message('GET ').replace('\r\n\r\n', '\r\nisthmus-ping: 300\r\n\r\n'));
    const answer = linesOf(await head(socket, / 101 /));
    for (const [name, value] of linesOf(message('HTTP/1.1 101')))
      if (VARIES.includes(name)) assert.match(answer.get(name) ?? '', /^[0-9a-f]{16}$/);
      else assert.equal(answer.get(name), value, name);
    const agent = new PagesAgent(socket);
    await agent.#begins();
    return agent;
  }

  lose(): void {
    this.#socket.destroy();
  }

  /** Plays a part of the page. */
  async play(heading: string): Promise<void> {
    for (;;) {
      try {
        for (const each of framesOf(heading)) await this.#step(each);
        return;
      } catch (error) {
        if (!(error instanceof GivenUp)) throw error;
      }
    }
  }

  async #begins(): Promise<void> {
    let preface = PREFACE.length;
    this.#socket.on('data', (chunk: Buffer) => {
      const skipped = Math.min(preface, chunk.length);
      assert.ok(PREFACE.subarray(PREFACE.length - preface).indexOf(chunk.subarray(0, skipped)) === 0);
      preface -= skipped;
      this.#unread = Buffer.concat([this.#unread, chunk.subarray(skipped)]);
      this.#read();
    });
    await this.play('### A link begins');
    this.#begun = true;
    this.#answerPings();
  }

  /** Answers PINGs at once, but not before this side's SETTINGS. */
  #answerPings(): void {
    const isPing = ({ type, flags }: Frame) => type === FrameType.PING && !(flags & ACK);
    for (const frame of this.#frames.filter(isPing)) {
      this.#frames.splice(this.#frames.indexOf(frame), 1);
      this.#socket.write(encoded({ ...frame, flags: ACK }));
    }
  }

  #read(): void {
    while (this.#unread.length >= 9) {
      const end = 9 + this.#unread.readUIntBE(0, 3);
      if (this.#unread.length < end) return;
      const [type, flags] = [this.#unread.readUInt8(3), this.#unread.readUInt8(4)];
      this.#frames.push({ type, flags, stream: this.#unread.readUInt32BE(5), payload: this.#unread.subarray(9, end) });
      this.#unread = this.#unread.subarray(end);
    }
    if (this.#begun) this.#answerPings();
  }

  async #step(example: Example): Promise<void> {
    const { by, stream } = example;
    if (by === 'hub') {
      await this.#hear(example);
      return;
    }
    const live = this.#streams.get(stream) ?? (await this.#next(stream));
    this.#socket.write(encoded({ ...example, stream: live }));
  }

  /** The stream that the hub opens next, where the page shows only its answer. */
  async #next(stream: number): Promise<number> {
    const { stream: live } = await this.#frame(({ type }) => type === FrameType.HEADERS);
    this.#streams.set(stream, live);
    return live;
  }

  async #hear({ type, flags, stream, payload }: Example): Promise<void> {
    if (type === FrameType.HEADERS) {
      const begun = await this.#frame((frame) => frame.type === type);
      this.#streams.set(stream, begun.stream);
      assert.equal(begun.flags, flags);
      assert.deepEqual(comparable(begun.payload), comparable(payload));
      return;
    }
    const live = this.#streams.get(stream);
    const same = (frame: Frame) => frame.type === type && frame.flags === flags && frame.stream === live;
    // Marks replace each other: some that the page leaves out may come before.
    if (type === FrameType.MARK) await this.#frame((frame) => same(frame) && frame.payload.equals(payload));
    else {
      const frame = await this.#frame(same);
      if (stream === 1) {
        const [said, shown] = [frame.payload, payload].map((line) => JSON.parse(line.toString()) as object);
        const { hubs: [hub = {}] = [] } = said as { hubs?: object[] };
        const { hubs: [example = {}] = [] } = shown as { hubs?: object[] };
        assert.deepEqual(
          [Object.keys(said as object), Object.keys(hub)],
          [Object.keys(shown as object), Object.keys(example)],
        );
      } else if (type === FrameType.DATA) assert.equal(frame.payload.toString(), payload.toString());
    }
  }

  /** Waits for a frame, and takes it. @throws GivenUp if the hub resets a stream first */
  async #frame(wanted: (frame: Frame) => boolean): Promise<Frame> {
    const streams = [...this.#streams.values()];
    const isReset = ({ type, stream }: Frame) => type === FrameType.RST_STREAM && streams.includes(stream);
    const found = await until(() => this.#frames.find(isReset) ?? this.#frames.find(wanted), {
      what: () => `a frame; these came: ${this.#frames.map(({ type, stream }) => `${type} on ${stream}`)}`,
      hopeless: () => this.#frames.find(({ type }) => type === FrameType.GOAWAY)?.payload.toString('latin1', 8),
    });
    this.#frames.splice(this.#frames.indexOf(found), 1);
    if (isReset(found)) throw new GivenUp();
    return found;
  }
}
