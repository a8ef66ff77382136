import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import test from 'node:test';
import { connect as connectTls } from 'node:tls';
import { Client, credentials, status } from '@grpc/grpc-js';
import {
  agentPackets,
  echo,
  eventually,
  greeter,
  newTrust,
  packetsThrough,
  type Scope,
  scoped,
  startServer,
  type Trust,
  until,
  within,
} from '../harness/index.ts';
import { acrossShared, EVERY_PAIR } from './rig.ts';

const across = acrossShared();

async function agentVia(trust: Trust, port: number) {
  return { port, ca: trust.agents.cert, identity: await trust.agents.client('agent') };
}

/** A server of ours, and agents whose every packet the test writes. */
async function bareServer(scope: Scope) {
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust);
  const via = await agentVia(trust, server.agentPort);
  const connectAgent = async (metadata: Readonly<Record<string, string | string[]>>) => {
    const agent = agentPackets(scope, via, metadata);
    await until(() => agent.metadata, { what: 'initial metadata', hopeless: () => agent.status?.details });
    return agent;
  };
  return { trust, server, via, connectAgent };
}

across(EVERY_PAIR, 'random keeps all 63 bits, and a DIAL_REQ may come without its type', async (scope, rig) => {
  const { server } = await rig();
  const destination = await echo(scope);
  // Field 2 (dialRequest): protocol, address, random = 2^63 - 1. Field 1 (type) is absent: proto3 does not encode 0.
  const address = Buffer.from(destination.authority);
  const random = Buffer.from('18ffffffffffffffff7f', 'hex');
  const inner = Buffer.concat([Buffer.from('\x0a\x03tcp\x12'), Buffer.from([address.length]), address, random]);
  const dial = Buffer.concat([Buffer.from([0x12, inner.length]), inner]);
  const client = new Client(`unix://${server.grpc.uds}`, credentials.createInsecure());
  scope.defer(() => client.close());
  const same = (bytes: Buffer) => bytes;
  const stream = client.makeBidiStreamRequest('/ProxyService/Proxy', same, same);
  stream.on('error', () => {});
  stream.write(dial);
  const [answer] = (await within(once(stream, 'data'), { what: 'DIAL_RSP' })) as [Buffer];
  stream.cancel();
  // DIAL_RSP: type 1; dialResponse (3) holds connectID (2) and random (3) and no error (1).
  assert.equal(answer.subarray(0, 3).toString('hex'), '08011a');
  assert.ok(answer.includes(random), answer.toString('hex'));
});

across(EVERY_PAIR, 'a write of 25 bytes arrives as one DATA packet', async (scope, rig) => {
  const { server } = await rig();
  const destination = await echo(scope);
  const caller = packetsThrough(scope, server.grpc);
  const { error, connectID } = await caller.dial(destination.authority);
  assert.equal(error, '');
  for (let round = 0; round < 5; round++) {
    caller.send({ type: 'DATA', connectID, error: '', data: Buffer.alloc(25, round) });
    const { data } = await caller.expect('DATA');
    assert.deepEqual(Buffer.from(data), Buffer.alloc(25, round));
  }
});

across(
  EVERY_PAIR,
  'CLOSE_REQ closes the destination socket and is answered with CLOSE_RSP without an error',
  async (scope, rig) => {
    const { server } = await rig();
    const destination = await echo(scope);
    const caller = packetsThrough(scope, server.grpc);
    const { connectID } = await caller.dial(destination.authority);
    caller.send({ type: 'CLOSE_REQ', connectID });
    assert.deepEqual(await caller.expect('CLOSE_RSP'), { type: 'CLOSE_RSP', error: '', connectID });
    await eventually(() => assert.equal(destination.open, 0));
  },
);

across(EVERY_PAIR, "a destination's end sends the queued DATA, then an unsolicited CLOSE_RSP", async (scope, rig) => {
  const { server } = await rig();
  const destination = await greeter(scope, 'last words');
  const caller = packetsThrough(scope, server.grpc);
  const { connectID } = await caller.dial(destination.authority);
  await until(() => destination.open === 1, { what: 'the connection' });
  for (const socket of destination.sockets) socket.end();
  assert.equal(Buffer.from((await caller.expect('DATA')).data).toString(), 'last words');
  assert.deepEqual(await caller.expect('CLOSE_RSP'), { type: 'CLOSE_RSP', error: '', connectID });
});

across(EVERY_PAIR, 'when a caller vanishes, its destination socket closes', async (scope, rig) => {
  const { server } = await rig();
  const destination = await echo(scope);
  const caller = packetsThrough(scope, server.grpc);
  await caller.dial(destination.authority);
  await until(() => destination.open === 1, { what: 'the connection' });
  caller.stream.cancel();
  await eventually(() => assert.equal(destination.open, 0));
});

test(
  'the server answers an agent with exactly one serverid and servercount, at once',
  scoped(async (scope) => {
    const { connectAgent } = await bareServer(scope);
    const agent = await connectAgent({ agentid: 'a' });
    assert.equal(agent.metadata?.get('serverid').length, 1);
    assert.deepEqual(agent.metadata?.get('servercount'), ['1']);
    assert.deepEqual(agent.received, []);
  }),
);

test(
  'an agent with two ids or none is refused, and so are two sets of identifiers; unknown identifiers are ignored',
  scoped(async (scope) => {
    const { connectAgent, server, via } = await bareServer(scope);
    for (const metadata of [{}, { agentid: ['a', 'b'] }, { agentid: 'a', agentidentifiers: ['host=x', 'host=y'] }]) {
      const refused = agentPackets(scope, via, metadata);
      const { code } = await refused.ended();
      assert.notEqual(code, status.OK, JSON.stringify(metadata));
    }
    await connectAgent({ agentid: 'a', agentidentifiers: 'host=x.example&flavour=sweet&ipv4=1.2.3.4' });
    await server.program.waitReady();
  }),
);

test(
  'streams that both number their connections from 1 stay apart, and an id keeps its oldest stream',
  scoped(async (scope) => {
    const { connectAgent, server } = await bareServer(scope);
    const first = await connectAgent({ agentid: 'twin' });
    await server.program.waitReady();
    const second = await connectAgent({ agentid: 'twin' });
    const dial = async (agent: typeof first, destination: string) => {
      const caller = packetsThrough(scope, server.grpc);
      caller.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random: 7n });
      const { address, random } = await agent.expect('DIAL_REQ');
      assert.equal(address, destination);
      agent.send({ type: 'DIAL_RSP', error: '', connectID: 1n, random });
      const { connectID, error } = await caller.expect('DIAL_RSP');
      assert.equal(error, '');
      return { caller, connectID };
    };
    const one = await dial(first, 'one.test:80');
    await first.stream.cancel();
    await one.caller.ended();
    const two = await dial(second, 'two.test:80');
    const third = await connectAgent({ agentid: 'third' });
    second.stream.end();
    second.stream.cancel();
    await two.caller.ended();
    const three = await dial(third, 'three.test:80');
    third.send({ type: 'DATA', connectID: 1n, error: '', data: Buffer.from('three') });
    assert.equal(Buffer.from((await three.caller.expect('DATA')).data).toString(), 'three');
    assert.deepEqual(
      two.caller.received.filter(({ type }) => type === 'DATA'),
      [],
    );
  }),
);

test(
  'DATA from an agent for an unknown connection is answered with CLOSE_REQ',
  scoped(async (scope) => {
    const { connectAgent } = await bareServer(scope);
    const agent = await connectAgent({ agentid: 'a' });
    agent.send({ type: 'DATA', connectID: 4711n, error: '', data: Buffer.from('lost') });
    assert.deepEqual(await agent.expect('CLOSE_REQ'), { type: 'CLOSE_REQ', connectID: 4711n });
  }),
);

test(
  'a second DIAL_REQ on a stream opens no second connection',
  scoped(async (scope) => {
    const { connectAgent, server } = await bareServer(scope);
    const agent = await connectAgent({ agentid: 'a' });
    await server.program.waitReady();
    const caller = packetsThrough(scope, server.grpc);
    const dial = { type: 'DIAL_REQ', protocol: 'tcp' } as const;
    caller.send({ ...dial, address: 'first.test:80', random: 1n });
    const { random } = await agent.expect('DIAL_REQ');
    agent.send({ type: 'DIAL_RSP', error: '', connectID: 9n, random });
    await caller.expect('DIAL_RSP');
    caller.send({ ...dial, address: 'second.test:80', random: 2n });
    const packet = await Promise.race([caller.next(), caller.ended()]);
    assert.ok(!('type' in packet) || packet.type !== 'DIAL_RSP' || packet.error !== '', 'the second dial was accepted');
    assert.deepEqual(
      agent.received.map(({ type }) => type).filter((type) => type === 'DIAL_REQ'),
      ['DIAL_REQ'],
    );
  }),
);

test(
  'pings without a stream are answered and do not count as an attack',
  scoped(async (scope) => {
    const { server, via, trust } = await bareServer(scope);
    const socket = connectTls({
      socket: connectTcp(server.agentPort, '127.0.0.1'),
      servername: 'localhost',
      ALPNProtocols: ['h2'],
      ca: readFileSync(trust.agents.cert),
      cert: readFileSync(via.identity.cert),
      key: readFileSync(via.identity.key),
    });
    await once(socket, 'secureConnect');
    assert.equal(socket.alpnProtocol, 'h2');
    const session = connectHttp2('https://localhost', { createConnection: () => socket });
    scope.defer(() => session.destroy());
    const ended: string[] = [];
    for (const event of ['goaway', 'close', 'error']) session.on(event, () => ended.push(event));
    for (let i = 0; i < 20; i++) {
      await within(
        new Promise<void>((resolve, reject) => session.ping((error) => (error ? reject(error) : resolve()))),
        {
          what: 'a PING acknowledgement',
        },
      );
    }
    assert.deepEqual(ended, []);
  }),
);
