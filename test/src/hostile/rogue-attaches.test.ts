import assert from 'node:assert/strict';
import test from 'node:test';
import { newTrust, nextChunk, Scope, SLOW_TESTS, startServer, until } from '../harness/index.ts';
import { block, FLAG, frame, settings, TYPE, uint32 } from './frames.ts';
import { rogueAgent } from './links.ts';
import { raw } from './rig.ts';
import { memory } from './strangers.ts';

const KIB = 1024;

/** What the agent says of a tunnel whose other end it claims to have lost (docs/RESUME.md). */
const LOST = 0x49530001;

/** What a stream carries before anybody has read. */
const WINDOW = 64 * KIB;

const INSTANCE = 'a'.repeat(16);

/** Tunnels whose callers read nothing, and how many attaches the agent takes of each. The first few fill the callers' sockets. */
const { tunnels, attaches } = SLOW_TESTS ? { tunnels: 200, attaches: 40 } : { tunnels: 4, attaches: 14 };

const ANSWER = [':status', '200'] as const;

test('of what an agent sends that loses tunnels again and again, and takes each next attach, a tunnel holds nothing that its caller has not taken', async (t) => {
  await using scope = new Scope();
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust, { 'resume-memory': 0, 'resume-timeout': '60s' });
  const { program } = server;
  const socket = await rogueAgent(scope, trust, server.agentPort, 'rogue', { instance: INSTANCE });
  await socket.send(settings());
  await socket.frame(TYPE.HEADERS, 1);
  await program.waitReady();
  let [taken, mostHeld, sent] = [0, 0, 0];
  /** Fills the window of a stream, and loses it. */
  const fill = async (stream: number) => {
    sent += WINDOW;
    for (let left = WINDOW - 1; left > 0; left -= 16 * KIB)
      await socket.send(frame(TYPE.DATA, 0, stream, Buffer.alloc(Math.min(left, 16 * KIB))));
    await socket.send(frame(TYPE.RST_STREAM, 0, stream, uint32(LOST)));
  };
  const serve = async (stream: number, head: string) => {
    const position = (name: string) => Number(new RegExp(`${name}=(\\d+)`).exec(head)?.[1]);
    const attach = head.includes('isthmus-attach');
    const grant = ['isthmus-resume', `instance=${INSTANCE};secret=${'b'.repeat(32)}`] as const;
    const answer = ['isthmus-attach', `received=0;taken=0;from=${attach && position('received')}`] as const;
    await socket.send(frame(TYPE.HEADERS, FLAG.END_HEADERS, stream, block([ANSWER, attach ? answer : grant])));
    if (attach) {
      taken++;
      mostHeld = Math.max(mostHeld, position('received') - position('taken'));
    }
    await fill(stream);
  };
  socket.onFrame = ({ type, flags, stream, payload }) => {
    if (type === TYPE.HEADERS && stream > 1) void serve(stream, payload.toString('latin1'));
    if (type === TYPE.PING && !(flags & FLAG.ACK)) void socket.send(frame(TYPE.PING, FLAG.ACK, 0, payload));
  };
  const before = await memory(program);
  for (let i = 0; i < tunnels; i++) {
    const caller = await raw(scope, server.connect);
    caller.write('CONNECT rogue:80 HTTP/1.1\r\nHost: x\r\n\r\n');
    assert.match(String(await nextChunk(caller, 'an answer')), /^HTTP\/1\.1 200 /);
    caller.pause();
  }
  await until(() => taken >= tunnels * attaches, {
    what: () => `${tunnels * attaches} attaches: ${taken}`,
    deadline: 120_000,
  });
  const grown = (await memory(program)) - before;
  t.diagnostic(`${sent / KIB} KiB were sent, at most ${mostHeld / KIB} KiB of a tunnel held, ${grown / KIB} KiB grown`);
  assert.ok(sent > (tunnels * attaches * WINDOW) / 2);
  assert.equal(mostHeld, 0);
  assert.deepEqual(new Set((await program.metric('isthmus_tunnels_cut_total')).values()), new Set([0]));
});
