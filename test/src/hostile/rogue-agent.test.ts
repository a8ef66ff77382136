import assert from 'node:assert/strict';
import test from 'node:test';
import { allInOne, echo, mostKept, Scope, until } from '../harness/index.ts';
import { block, FLAG, type FrameSocket, frame, settings, TYPE, uint32 } from './frames.ts';
import { rogueAgent } from './links.ts';
import { attack, bystander, raw } from './rig.ts';

type Fields = readonly (readonly [name: string, value: string])[];

const answer = (stream: number, fields: Fields, flags: number = FLAG.END_HEADERS) =>
  frame(TYPE.HEADERS, flags, stream, block(fields));
const status = (stream: number, code: string, ...more: Fields) => answer(stream, [[':status', code], ...more]);

/** What an agent may do with a dial, on the dial's stream. */
const ANSWERS: readonly [name: string, act: (socket: FrameSocket, stream: number) => unknown][] = [
  ['resets it', (socket, stream) => socket.send(frame(TYPE.RST_STREAM, 0, stream, uint32(8)))],
  ['refuses its stream', (socket, stream) => socket.send(frame(TYPE.RST_STREAM, 0, stream, uint32(7)))],
  ['says nothing', () => {}],
  ['only says 102', (socket, stream) => socket.send(status(stream, '102'), status(stream, '103'))],
  ['says 200 twice', (socket, stream) => socket.send(status(stream, '200'), status(stream, '200'))],
  ['says 204', (socket, stream) => socket.send(status(stream, '204'))],
  ['says 999', (socket, stream) => socket.send(status(stream, '999'))],
  ['says an invalid status', (socket, stream) => socket.send(status(stream, 'abc'))],
  ['gives no status', (socket, stream) => socket.send(answer(stream, [['x', 'y']]))],
  [
    'says 502 for a reason that is none',
    (socket, stream) => socket.send(status(stream, '502', ['proxy-status', 'a; error=constructor; details="\\'])),
  ],
  ['says 502, and never ends', (socket, stream) => socket.send(status(stream, '502'))],
  [
    'gives names that are not encoded',
    (socket, stream) =>
      socket.send(status(stream, '200', ['isthmus-agent', '%zz'], ['server-timing', 'dns;dur=1e999'])),
  ],
  [
    'ends at once',
    (socket, stream) => socket.send(answer(stream, [[':status', '200']], FLAG.END_HEADERS | FLAG.END_STREAM)),
  ],
  [
    'sends 60 KiB of headers',
    (socket, stream) => {
      const big = block([
        [':status', '200'],
        ...Array.from({ length: 60 }, (_, i) => [`x${i}`, 'x'.repeat(1000)] as const),
      ]);
      const parts = [frame(TYPE.HEADERS, 0, stream, big.subarray(0, 16_000))];
      for (let at = 16_000; at < big.length; at += 16_000) {
        const last = at + 16_000 >= big.length;
        parts.push(frame(TYPE.CONTINUATION, last ? FLAG.END_HEADERS : 0, stream, big.subarray(at, at + 16_000)));
      }
      return socket.send(...parts);
    },
  ],
  ['goes away', (socket) => socket.send(frame(TYPE.GOAWAY, 0, 0, Buffer.alloc(8)))],
  [
    'breaks off amid a frame',
    async (socket, stream) => {
      await socket.send(frame(TYPE.DATA, 0, stream, Buffer.alloc(10), 1000));
      socket.socket.destroy();
    },
  ],
  ['sends data ahead of its answer', (socket, stream) => socket.send(frame(TYPE.DATA, 0, stream, Buffer.alloc(10)))],
  [
    'sends more than its window',
    (socket, stream) => {
      const data = Array.from({ length: 300 }, () => frame(TYPE.DATA, 0, stream, Buffer.alloc(16_384)));
      return socket.send(status(stream, '200'), ...data);
    },
  ],
];

/** Lines on the control stream, and whether the hub may keep such an agent. */
const LINES: readonly [name: string, text: string, kept: boolean][] = [
  ['types of a later version', '{"type":"hello","x":1}\n{"type":"abort","dial":"x"}\n', true],
  ['a line that is not JSON', 'nonsense\n', false],
  ['a line that is not an object', '7\n', false],
  ['null', 'null\n', false],
  ['a line of 1 MiB', 'x'.repeat(1 << 20), false],
];

const KIB = 1024;

/** The server's `--resume-memory`, in MiB. */
const RESUME_MEMORY = 1;

/** What one tunnel may make the server keep. */
const MOST_KEPT = mostKept(1, RESUME_MEMORY);

/** The flag of a mark that asks what the other half has taken (docs/RESUME.md). */
const ASKS = 2;

const GRANT = ['isthmus-resume', `instance=${'a'.repeat(16)};secret=${'b'.repeat(32)}`] as const;

test('an agent that misuses its link harms nobody else', async (t) => {
  await using scope = new Scope();
  const serverFlags = {
    'resume-memory': RESUME_MEMORY,
    'proxy-strategies': 'destHost,default',
    'backend-dial-timeout': '1s',
  };
  const { server, agents, trust } = await allInOne(scope, { serverFlags });
  const { program } = server;
  const destination = await echo(scope);
  const victim = await bystander(scope, server.connect, destination.authority, [program, ...agents]);
  let count = 0;
  const connect = async (scope: Scope) => {
    const agentId = `rogue-${++count}`;
    const socket = await rogueAgent(scope, trust, server.agentPort, agentId);
    await socket.send(settings());
    await socket.frame(TYPE.HEADERS, 1);
    await program.waitForLog(({ msg, agent }) => msg === 'session opened' && agent === agentId, {
      what: 'its session',
    });
    return { agentId, socket };
  };
  const closed = (agentId: string) =>
    program.waitForLog(({ msg, agent }) => msg === 'session closed' && agent === agentId, {
      what: `the end of ${agentId}`,
    });

  for (const [name, act] of ANSWERS) {
    await attack(t, victim, `to a dial it ${name}`, async (scope) => {
      const { agentId, socket } = await connect(scope);
      let dialled = 0;
      socket.onFrame = ({ type, stream }) => {
        if (type === TYPE.HEADERS && stream > 1 && dialled++ === 0) void act(socket, stream);
        if (type === TYPE.PING) void socket.send(frame(TYPE.PING, FLAG.ACK, 0, Buffer.alloc(8)));
      };
      const caller = await raw(scope, server.connect);
      caller.write(`CONNECT ${agentId}:80 HTTP/1.1\r\nHost: x\r\n\r\n`);
      let said = '';
      caller.on('data', (chunk) => {
        said += chunk.toString('latin1');
      });
      await until(() => said.includes('\r\n\r\n') || caller.closed, { what: 'an answer' });
      // A slow dial is given up, and both sockets of this process may then be read in any order.
      await until(() => dialled > 0, { what: () => `the dial, which went elsewhere: ${said}` });
      assert.match(said, /^HTTP\/1\.1 (200|502|503|504) /);
      caller.end();
      await until(() => caller.closed || socket.ended || said.startsWith('HTTP/1.1 200'), {
        what: 'its end',
      });
      socket.socket.destroy();
      await closed(agentId);
      await until(() => caller.closed, { what: 'the end of the caller, whose agent is gone' });
    });
  }

  for (const [name, text, kept] of LINES) {
    await attack(t, victim, `on its control stream it sends ${name}`, async (scope) => {
      const { agentId, socket } = await connect(scope);
      await socket.send(status(1, '200'));
      for (let at = 0; at < text.length; at += 16_000) {
        await socket.send(frame(TYPE.DATA, 0, 1, Buffer.from(text.slice(at, at + 16_000))));
      }
      if (kept) {
        await socket.send(frame(TYPE.DATA, 0, 1, Buffer.from('{"type":"drain"}\n')));
        await program.waitForLog(({ msg, agent }) => msg === 'session drains' && agent === agentId, {
          what: 'its drain',
        });
      } else {
        await closed(agentId);
      }
    });
  }

  await attack(t, victim, 'it takes an upload, and acknowledges nothing of it', async (scope) => {
    const { agentId, socket } = await connect(scope);
    let [taken, asked] = [0, false];
    socket.onFrame = ({ type, stream, payload }) => {
      if (type === TYPE.HEADERS && stream > 1) void socket.send(status(stream, '200', GRANT));
      if (type === TYPE.PING) void socket.send(frame(TYPE.PING, FLAG.ACK, 0, payload));
      if (type === TYPE.MARK && ((payload[0] ?? 0) & ASKS) !== 0) asked = true;
      if (type !== TYPE.DATA || stream === 1 || payload.length === 0) return;
      taken += payload.length;
      const more = uint32(payload.length);
      void socket.send(frame(TYPE.WINDOW_UPDATE, 0, 0, more), frame(TYPE.WINDOW_UPDATE, 0, stream, more));
    };
    const kept = () => program.value('isthmus_resume_kept_bytes');
    const caller = await raw(scope, server.connect);
    caller.resume().write(`CONNECT ${agentId}:80 HTTP/1.1\r\nHost: x\r\n\r\n`);
    const upload = Buffer.alloc(16 * KIB * KIB);
    caller.write(upload);
    await until(() => asked, { what: 'a server that asks what was taken' });
    await victim.unharmed();
    assert.ok(taken >= 256 * KIB && taken <= MOST_KEPT, `${taken} bytes have come`);
    const bytes = await kept();
    assert.ok(bytes >= 256 * KIB && bytes <= MOST_KEPT, `${bytes} bytes are kept`);
    socket.socket.destroy();
    await closed(agentId);
    await until(() => caller.closed, { what: 'the end of the caller, whose agent is gone' });
    await until(async () => (await kept()) < 256 * KIB, { what: 'the end of what was kept for it' });
  });

  await attack(t, victim, 'it ends its half of the connection: the hub notices without a PING', async (scope) => {
    const { agentId, socket } = await connect(scope);
    socket.socket.end();
    assert.doesNotMatch(String((await closed(agentId)).reason), /PING/);
  });

  await attack(t, victim, 'it never answers a PING', async (scope) => {
    const { agentId } = await connect(scope);
    await closed(agentId);
  });

  await attack(t, victim, 'it leaves as soon as it has connected, 50 times', async (scope) => {
    for (let i = 0; i < 50; i++) {
      const socket = await rogueAgent(scope, trust, server.agentPort, `brief-${i}`);
      socket.socket.destroy();
    }
  });
});
