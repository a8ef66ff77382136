import assert from 'node:assert/strict';
import test from 'node:test';
import { agentPackets, allInOne, type LogLine, Scope, scoped } from '../harness/index.ts';
import { FrameSocket, PREFACE, settings } from './frames.ts';
import { head, upgrade } from './links.ts';
import { raw, refusals, refused, saidUntilEnd } from './rig.ts';

/** Without TLS, and so without certificates. */
const PLAIN = {
  serverFlags: { 'cluster-cert': undefined, 'cluster-key': undefined, 'cluster-ca-cert': undefined },
  agentFlags: { 'ca-cert': undefined, 'agent-cert': undefined, 'agent-key': undefined },
};

/** The decoded text of the answer's `isthmus-error` field. */
const errorOf = (head: string) => decodeURIComponent(/isthmus-error: (\S+)/.exec(head)?.[1] ?? '');

test(
  'an agent may have 100 sessions, links and gRPC together, and another agent has a limit of its own',
  scoped(async (scope) => {
    const { server } = await allInOne(scope, PLAIN);
    const { program, agentPort: port } = server;
    const join = async (agent: string) => {
      const socket = await raw(scope, { port });
      socket.write(upgrade({ 'isthmus-agent': agent }));
      const answer = await head(socket);
      // A session counts for as long as it lives: its agent sends SETTINGS first, and then answers each PING.
      if (answer.startsWith('HTTP/1.1 101 ')) {
        socket.write(settings());
        new FrameSocket(socket, PREFACE.length).answerPings();
      }
      return answer;
    };
    const answers = [];
    for (let i = 0; i < 130; i++) answers.push(await join('many'));
    assert.equal(answers.filter((answer) => answer.startsWith('HTTP/1.1 101 ')).length, 100);
    assert.equal(errorOf(answers.at(-1) as string), 'agent many has 100 sessions here already: --max-agent-sessions');
    const packets = agentPackets(scope, { port }, { agentid: 'many' });
    const { code, details } = await packets.ended();
    assert.deepEqual([code, details], [8, 'agent many has 100 sessions here already: --max-agent-sessions']);
    assert.equal(await refusals(program, 'agent sessions'), 31);
    assert.match(await join('another'), /^HTTP\/1\.1 101 /);
  }),
);

test(
  'identifiers beyond their bounds and names with control characters are refused by name and leave nothing behind',
  scoped(async (scope) => {
    const { server } = await allInOne(scope, PLAIN);
    const { program, agentPort: port } = server;
    const long = `host=${'x'.repeat(13_700)}`;
    const many = Array.from({ length: 257 }, (_, i) => `host=${i}`).join('&');
    const refusedLinks: readonly [where: string, fields: Readonly<Record<string, string>>, error: RegExp][] = [
      [
        'agent identifiers',
        { 'isthmus-agent': 'a', 'isthmus-identifiers': encodeURIComponent(long) },
        /^13705 bytes in the agent's identifiers, more than 8192: --max-agent-identifier-bytes$/,
      ],
      [
        'agent identifiers',
        { 'isthmus-agent': 'a', 'isthmus-identifiers': encodeURIComponent(many) },
        /^257 identifiers in the agent's identifiers, more than 256: --max-agent-identifiers$/,
      ],
      ['agents', { 'isthmus-agent': 'a%1B%5B2J' }, /^isthmus-agent with control characters/],
      ['agents', { 'isthmus-agent': 'a%E2%80%AE' }, /^isthmus-agent with control characters/],
      ['agents', { 'isthmus-agent': 'x'.repeat(265) }, /^isthmus-agent of 265 characters/],
      ['agents', { 'isthmus-agent': 'a', 'isthmus-tenant': 'a%0Ab' }, /^isthmus-tenant with control characters/],
      ['agents', { 'isthmus-agent': 'a', 'isthmus-version': 'a%00' }, /^isthmus-version with control characters/],
      ['agents', { 'isthmus-agent': 'a', 'isthmus-identifiers': 'host%3Da%250Ab' }, /control characters/],
    ];
    for (const [where, fields, error] of refusedLinks) {
      await refused(program, where, async () => {
        const socket = await raw(scope, { port });
        socket.write(upgrade(fields));
        assert.match(errorOf(await saidUntilEnd(socket)), error);
      });
    }
    for (const [where, metadata, details] of [
      ['agent identifiers', { agentid: 'a', agentidentifiers: long }, /more than 8192: --max-agent-identifier-bytes/],
      ['agent identifiers', { agentid: 'a', agentidentifiers: many }, /more than 256: --max-agent-identifiers/],
      ['grpc agents', { agentid: 'x'.repeat(265) }, /agent ID of 265 characters/],
      ['grpc agents', { agentid: 'a', agentidentifiers: 'host=a%0Ab' }, /control characters/],
    ] as const) {
      await refused(program, where, async () => {
        await using own = new Scope();
        assert.match((await agentPackets(own, { port }, metadata).ended()).details, details);
      });
    }
    assert.ok(!program.logs.some(({ msg, agent }) => msg === 'session opened' && agent === 'a'), program.tail);
  }),
);

test(
  'an identifier that is no network is refused by name, with the name of its agent, which has its session and its other identifiers',
  scoped(async (scope) => {
    const flags = { 'proxy-strategies': 'destCIDR' };
    const { server } = await allInOne(scope, { ...PLAIN, serverFlags: { ...PLAIN.serverFlags, ...flags } });
    const { program, agentPort: port } = server;
    const identifiers = 'cidr=10.0.0.0/8,192.168.0.0/16&cidr=172.16.0.0/12';
    const opened = (agent: string) =>
      program.waitForLog(({ msg, agent: id }) => msg === 'session opened' && id === agent, {
        what: `the session of ${agent}`,
      });
    await refused(program, 'agents', async () => {
      const socket = await raw(scope, { port });
      socket.write(upgrade({ 'isthmus-agent': 'linked', 'isthmus-identifiers': encodeURIComponent(identifiers) }));
      assert.match(await head(socket), /^HTTP\/1\.1 101 /);
      socket.write(settings());
      new FrameSocket(socket, PREFACE.length).answerPings();
      await opened('linked');
    });
    await refused(program, 'agents', async () => {
      agentPackets(scope, { port }, { agentid: 'packets', agentidentifiers: identifiers });
      await opened('packets');
    });
    for (const agent of ['linked', 'packets']) {
      const isOf = ({ msg, remote }: LogLine) => msg === 'refused' && remote === `agent ${agent}`;
      const told = await program.waitForLog(isOf, { what: `what is refused of ${agent}` });
      assert.equal(
        told.text,
        'the identifier cidr=10.0.0.0/8,192.168.0.0/16 is no network and is ignored: give each network a cidr= of its own',
      );
      assert.ok(!program.logs.some(({ msg, agent: id }) => msg === 'session closed' && id === agent), program.tail);
    }
    assert.ok(!program.logs.some(({ msg }) => msg === 'fault'), program.tail);
  }),
);
