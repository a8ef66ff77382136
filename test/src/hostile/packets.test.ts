import assert from 'node:assert/strict';
import test from 'node:test';
import { encodePacket, type Packet } from '@isthmus/proto';
import { agentPackets, allInOne, echo, packetsThrough, Scope, until, type Via } from '../harness/index.ts';
import { block, FLAG, type Frame, FrameSocket, frame, PREFACE, settings, TYPE } from './frames.ts';
import { attack, bystander, raw, refused } from './rig.ts';

const dialReq = (address: string, more: Partial<Extract<Packet, { type: 'DIAL_REQ' }>> = {}): Packet => {
  return { type: 'DIAL_REQ', protocol: 'tcp', address, random: 7n, ...more };
};
const data = (connectID: bigint, bytes = Buffer.from('x')): Packet => ({
  type: 'DATA',
  connectID,
  error: '',
  data: bytes,
});

test('bad packets from callers and agents are answered and disturb nothing', async (t) => {
  await using scope = new Scope();
  const { server, agents, trust } = await allInOne(scope);
  const { program, grpc } = server;
  const destination = await echo(scope);
  const victim = await bystander(scope, server.connect, destination.authority, [program, ...agents]);

  await attack(t, victim, 'dials that lead nowhere', async (scope) => {
    for (const [address, more] of [
      ['', {}],
      ['localhost', {}],
      [':80', {}],
      ['localhost:http', {}],
      ['x'.repeat(16_000), {}],
      [destination.authority, { protocol: 'udp' }],
      [destination.authority, { protocol: '' }],
    ] as const) {
      await refused(program, 'gateway packets', async () => {
        const packets = packetsThrough(scope, grpc);
        packets.send(dialReq(address, more));
        const { error, random, connectID } = await packets.expect('DIAL_RSP');
        assert.notEqual(error, '');
        assert.deepEqual([random, connectID], [7n, 0n]);
        await packets.ended();
      });
    }
  });

  await attack(t, victim, 'packets of connections that no one opened', async (scope) => {
    const packets = packetsThrough(scope, grpc);
    packets.send(data(99n));
    assert.equal((await packets.expect('CLOSE_RSP')).connectID, 99n);
    packets.send({ type: 'CLOSE_REQ', connectID: 98n });
    assert.equal((await packets.expect('CLOSE_RSP')).connectID, 98n);
    packets.send({ type: 'CLOSE_RSP', connectID: 97n, error: '' });
    packets.send({ type: 'DIAL_CLS', random: 96n });
    packets.send({ type: 'DIAL_RSP', random: 95n, connectID: 95n, error: '' });
    packets.send({ type: 'DRAIN' });
    assert.equal((await packets.dial(destination.authority)).error, '', 'the stream still takes its dial');
  });

  await attack(t, victim, 'negative numbers, DATA ahead of the answer, one dial twice', async (scope) => {
    const packets = packetsThrough(scope, grpc);
    packets.send(dialReq(destination.authority, { random: -5n }));
    packets.send(dialReq(destination.authority, { random: -5n }));
    packets.send(data(1n));
    packets.send(data(-1n));
    const answers = await until(() => packets.received.find((packet) => packet.type === 'DIAL_RSP'), {
      what: 'a DIAL_RSP',
    });
    assert.equal(answers.type === 'DIAL_RSP' && answers.random, -5n);
    await victim.unharmed();
    assert.equal(packets.received.filter(({ type }) => type === 'DIAL_RSP').length, 1);
  });

  await attack(t, victim, '4 MiB in one packet, and more than that', async (scope) => {
    const packets = packetsThrough(scope, grpc);
    const { connectID } = await packets.dial(destination.authority);
    packets.send(data(connectID, Buffer.alloc(4 << 20, 1)));
    const came = () =>
      packets.received.reduce((sum, packet) => sum + (packet.type === 'DATA' ? packet.data.length : 0), 0);
    await until(() => came() === 4 << 20, { what: () => `4 MiB back, got ${came()}` });
    packets.send(data(connectID, Buffer.alloc(5 << 20)));
    assert.equal((await packets.ended()).code, 8, 'RESOURCE_EXHAUSTED');
  });

  await attack(t, victim, 'messages that are not packets', async (scope) => {
    const wrongOneof = Buffer.concat([
      Buffer.of(0x08, 4),
      encodePacket({ type: 'CLOSE_REQ', connectID: 1n }).subarray(2),
    ]);
    for (const [name, message] of [
      ['an unknown type', Buffer.of(0x08, 42)],
      ["another type's payload", wrongOneof],
      ['no end', Buffer.of(0x22, 0x7f, 1)],
      ['an endless varint', Buffer.alloc(20, 0xff)],
      ['random bytes', Buffer.from('1f8b0800ffffffffdeadbeef', 'hex')],
    ] as const) {
      const socket = await openCall(scope, grpc, message);
      const ends = ({ type, flags }: Frame) => type === TYPE.HEADERS && (flags & FLAG.END_STREAM) !== 0;
      await until(() => socket.frames.some(ends), { what: `the status of ${name}` });
    }
  });

  await attack(t, victim, 'unknown fields, which are ignored', async (scope) => {
    const message = Buffer.concat([
      encodePacket(dialReq(destination.authority)),
      Buffer.of(0xf8, 0x07, 1, 0xfa, 0x07, 1, 0),
    ]);
    const socket = await openCall(scope, grpc, message);
    await socket.frame(TYPE.DATA, 1);
  });

  const via = { port: server.agentPort, ca: trust.agents.cert, identity: await trust.agents.client('rogue') };
  const metadata: readonly [name: string, sent: Record<string, string | string[]>][] = [
    ['no id', {}],
    ['two ids', { agentid: ['a', 'b'] }],
    ['a malformed identifier', { agentid: 'a', agentidentifiers: 'ipv4=%zz' }],
    ['a semicolon in its identifiers', { agentid: 'a', agentidentifiers: 'ipv4=1;ipv6=2' }],
    ['two sets of identifiers', { agentid: 'a', agentidentifiers: ['ipv4=1.2.3.4', 'ipv4=1.2.3.5'] }],
  ];
  for (const [name, sent] of metadata) {
    await attack(t, victim, `a Go agent with ${name}`, (scope) =>
      refused(program, 'grpc agents', async () => {
        const { code } = await agentPackets(scope, via, sent).ended();
        assert.equal(code, 3, 'INVALID_ARGUMENT');
      }),
    );
  }

  const identities: readonly [name: string, via: Via][] = [
    ['an expired certificate', { ...via, identity: await trust.agents.expired('rogue') }],
    ['a foreign certificate', { ...via, identity: await trust.agents.foreign('rogue') }],
    ["a caller's certificate", { ...via, identity: trust.caller }],
    ['no certificate', { port: via.port, ca: via.ca }],
  ];
  for (const [name, via] of identities) {
    await attack(t, victim, `a Go agent with ${name}`, (scope) =>
      refused(program, 'agents', async () => {
        const { code } = await agentPackets(scope, via, { agentid: 'rogue' }).ended();
        assert.equal(code, 7, 'PERMISSION_DENIED');
      }),
    );
  }

  await attack(
    t,
    victim,
    'a Go agent that sends what only servers send, and answers nobody asked for',
    async (scope) => {
      const agent = agentPackets(scope, via, { agentid: 'rogue', agentidentifiers: 'host=none' });
      await until(() => agent.metadata, { what: 'the metadata' });
      agent.send(dialReq(destination.authority));
      agent.send({ type: 'DIAL_RSP', random: 1n, connectID: 5n, error: '' });
      agent.send({ type: 'CLOSE_RSP', connectID: 6n, error: 'nonsense' });
      agent.send({ type: 'CLOSE_REQ', connectID: 6n });
      agent.send(data(6n, Buffer.alloc(4 << 20)));
      agent.send({ type: 'DIAL_CLS', random: 3n });
      assert.equal((await agent.expect('CLOSE_REQ')).connectID, 5n, 'the socket behind a stray answer is closed');
      agent.send({ type: 'DRAIN' });
      await program.waitForLog(({ msg, agent }) => msg === 'session drains' && agent === 'rogue', {
        what: 'the drain',
      });
    },
  );
});

/** Opens a stream of ProxyService.Proxy and sends one message of arbitrary bytes. */
async function openCall(scope: Scope, via: { uds: string }, message: Buffer): Promise<FrameSocket> {
  const socket = new FrameSocket(await raw(scope, via));
  const fields = [
    [':method', 'POST'],
    [':scheme', 'http'],
    [':path', '/ProxyService/Proxy'],
    [':authority', 'x'],
    ['te', 'trailers'],
    ['content-type', 'application/grpc'],
  ] as const;
  const length = Buffer.alloc(5);
  length.writeUInt32BE(message.length, 1);
  const head = frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block(fields));
  await socket.send(PREFACE, settings(), head, frame(TYPE.DATA, 0, 1, Buffer.concat([length, message])));
  return socket;
}
