import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import test from 'node:test';
import { connect as connectTls } from 'node:tls';
import { allInOne, echo, freePort, type Program, Scope, split, until } from '../harness/index.ts';
import { attack, bystander, raw, refused, saidUntilEnd } from './rig.ts';

/** A port of a program. */
interface Place {
  readonly name: string;
  readonly program: Program;
  readonly at: { readonly uds: string } | { readonly port: number };
  readonly tls: boolean;
  /** Where a refusal is counted. */
  readonly where: string;
  /** Waits a minute for a request's head, as upstream does, or for a handshake among thousands: longer than a test can wait. */
  readonly patient?: boolean;
}

test('input that is not a request is refused on every port and disturbs nothing', async (t) => {
  await using scope = new Scope();
  const [gatewayAdmin, hubAdmin, agentAdmin, peerPort] = await Promise.all([1, 2, 3, 4].map(() => freePort()));
  const plane = await split(scope, {
    gateways: 1,
    hubs: 1,
    agents: 1,
    gatewayFlags: { 'admin-port': gatewayAdmin },
    hubFlags: { 'admin-port': hubAdmin, 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` },
    agentFlags: { 'admin-server-port': agentAdmin },
  });
  const [gateway, hub, agent] = [plane.gateways[0]!, plane.hubs[0]!, plane.agents[0]!];
  const bare = await allInOne(scope, {
    serverFlags: { 'cluster-cert': undefined, 'cluster-key': undefined, 'cluster-ca-cert': undefined },
    agentFlags: { 'ca-cert': undefined, 'agent-cert': undefined, 'agent-key': undefined },
  });
  const programs = [gateway.program, hub.program, agent, bare.server.program, ...bare.agents];
  const destination = await echo(scope);
  const victim = await bystander(scope, gateway.connect, destination.authority, programs);
  const operators = (name: string, program: Program, admin: number): Place[] => [
    {
      name: `${name}'s health port`,
      program,
      at: { port: program.healthPort },
      tls: false,
      where: 'health',
      patient: true,
    },
    { name: `${name}'s admin port`, program, at: { port: admin }, tls: false, where: 'admin' },
  ];
  const places: Place[] = [
    { name: "callers' socket", program: gateway.program, at: gateway.connect, tls: false, where: 'http-connect' },
    { name: "callers' port", program: gateway.program, at: gateway.mtls, tls: true, where: 'callers' },
    {
      name: "agents' port",
      program: hub.program,
      at: { port: hub.agentPort },
      tls: true,
      where: 'agents',
      patient: true,
    },
    {
      name: "agents' port without TLS",
      program: bare.server.program,
      at: { port: bare.server.agentPort },
      tls: false,
      where: 'agents',
    },
    { name: "gateways' port", program: hub.program, at: { port: peerPort! }, tls: true, where: 'peers' },
    ...operators('gateway', gateway.program, gatewayAdmin!),
    ...operators('hub', hub.program, hubAdmin!),
    ...operators('agent', agent, agentAdmin!),
  ];
  const hello = await clientHello(scope);

  for (const place of places) {
    const { name, program, at, tls, where } = place;
    await attack(t, victim, `${name}: a scan, and connections without a byte`, async (scope) => {
      for (let i = 0; i < 20; i++) (await raw(scope, at)).destroy();
      const silent = await raw(scope, at);
      silent.end();
      assert.equal(await saidUntilEnd(silent), '');
    });
    await attack(t, victim, `${name}: garbage`, (scope) =>
      refused(program, where, async () => {
        const socket = await raw(scope, at);
        socket.write(Buffer.concat([Buffer.of(0), randomBytes(65_536)]));
        const said = await saidUntilEnd(socket);
        if (!tls) assert.match(said, /^HTTP\/1\.1 400 /);
      }),
    );
    await attack(t, victim, `${name}: TLS that breaks off`, async (scope) => {
      const act = async () => {
        const socket = await raw(scope, at);
        socket.end(hello.subarray(0, hello.length - 20));
        await saidUntilEnd(socket);
      };
      await refused(program, where, act);
    });
  }

  await attack(t, victim, 'on all at once: one byte a second, and half a TLS handshake', async (scope) => {
    const slow = async ({ name, program, at, tls, where }: Place) => {
      const bytes = tls ? hello : Buffer.from('CONNECT localhost:1 HTTP/1.1\r\nHost: somewhere\r\n');
      await refused(program, where, async () => {
        const dripping = drip(await raw(scope, at), bytes);
        const half = await raw(scope, at);
        half.write(hello.subarray(0, 50));
        await Promise.all([ended(dripping, `${name}, byte by byte`), ended(half, `${name}, half a handshake`)]);
      });
    };
    await Promise.all(places.filter(({ patient }) => !patient).map(slow));
  });
});

/** The first flight of a TLS handshake. */
async function clientHello(scope: Scope): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1');
  scope.defer(() => server.close());
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  const client = connectTls({ port: (server.address() as { port: number }).port, rejectUnauthorized: false });
  client.on('error', () => {});
  scope.defer(() => client.destroy());
  const [socket] = (await accepted) as [Socket];
  const [hello] = await once(socket, 'data');
  socket.destroy();
  return hello;
}

function drip(socket: Socket, bytes: Buffer): Socket {
  let sent = 0;
  const timer = setInterval(() => {
    if (sent < bytes.length) socket.write(bytes.subarray(sent, ++sent));
  }, 1000);
  socket.once('close', () => clearInterval(timer));
  socket.write(bytes.subarray(sent, ++sent));
  return socket;
}

async function ended(socket: Socket, what: string): Promise<void> {
  socket.resume();
  await until(() => socket.readableEnded || socket.destroyed, { what: `the end of ${what}` });
}
