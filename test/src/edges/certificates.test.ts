import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { after, before, describe, it } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  type Authority,
  freePort,
  type Identity,
  type IdentityOptions,
  type LogLine,
  newTrust,
  type Program,
  Scope,
  split,
  startAgent,
  startServer,
  type Trust,
  within,
} from '../harness/index.ts';

const DAY = 86_400_000;

/** Faults of a client's certificate, with the text that names each. */
const FAULTS: readonly [
  fault: string,
  says: RegExp,
  make: (authority: Authority, good: IdentityOptions) => Promise<Identity> | undefined,
][] = [
  [
    'expired',
    /it expired at \d{4}-\d\d-\d\dT/,
    (authority, good) => authority.client('ann', { ...good, validMs: -60_000 }),
  ],
  [
    'not yet valid',
    /it is not valid before \d{4}-\d\d-\d\dT/,
    (authority, good) => authority.client('ann', { ...good, notBeforeMs: DAY / 2 }),
  ],
  [
    'foreign',
    /it was issued by CN=\w+ authority, which is not a trusted authority here/,
    (authority, good) => authority.foreign('ann', good),
  ],
  [
    'for servers',
    /its extended key usage lacks clientAuth/,
    (authority, good) => authority.client('ann', { ...good, uses: ['server'] }),
  ],
  ['missing', /this port requires a client certificate, and the peer sent none/, () => undefined],
];

/** Faults of certificates that name nobody either. */
const NAMELESS: readonly [fault: string, says: RegExp, make: (authority: Authority) => Promise<Identity>][] = [
  [
    'is signed by itself',
    /of DNS:localhost, serial \w+ is refused: it was issued by an authority without a name/,
    (authority) => authority.alone(''),
  ],
  [
    'is for servers',
    /of no subject, serial \w+ is refused: its extended key usage lacks clientAuth: issue it with/,
    (authority) => authority.client('', { uses: ['server'] }),
  ],
];

/** Connects to a port with a certificate, speaks its protocol, and returns the answer. */
async function answerAt(
  port: number,
  ca: string,
  identity: Identity | undefined,
  alpn: string | undefined,
): Promise<{ readonly from: string; readonly said: string }> {
  const shown = identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) };
  const socket = connect({
    port,
    host: '127.0.0.1',
    ca: readFileSync(ca),
    ...shown,
    checkServerIdentity: () => undefined,
    ...(alpn && { ALPNProtocols: [alpn] }),
  });
  socket.on('error', () => {});
  // Not `once`: an answer counts, also if a reset follows it.
  const closed = new Promise((resolve) => socket.once('close', resolve));
  let said = '';
  if (alpn !== 'h2') {
    socket.on('data', (chunk) => {
      said += chunk.toString('latin1');
    });
  }
  await within(once(socket, 'secureConnect'), { what: 'a TLS handshake' });
  const from = `127.0.0.1:${socket.localPort}`;
  if (alpn === 'h2') said = await answerOf(socket);
  else socket.write('CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n');
  await within(closed, { what: 'the end of the connection' });
  return { from, said };
}

/** Returns why the first HTTP/2 stream was refused, as gRPC clients read it. */
async function answerOf(socket: TLSSocket): Promise<string> {
  const session = connectHttp2('https://x', { createConnection: () => socket });
  session.on('error', () => {});
  const stream = session.request({ ':method': 'POST', ':path': '/x', 'content-type': 'application/grpc' });
  stream.on('error', () => {});
  const [head] = await within(once(stream, 'response'), { what: 'an answer' });
  assert.equal(head['grpc-status'], '7');
  session.close();
  return decodeURIComponent(head['grpc-message']);
}

async function serverWithAdmin(scope: Scope, trust: Trust) {
  const adminPort = await freePort();
  const { cert, key } = await trust.callers.server();
  const admin = { 'admin-server-cert': cert, 'admin-server-key': key, 'admin-ca-cert': trust.callers.cert };
  return { ...(await startServer(scope, trust, { 'admin-port': adminPort, ...admin })), adminPort };
}

describe('an invalid client certificate is named at both ends', { skip: redisMissing() }, () => {
  let scope: Scope;
  let trust: Trust;
  let ports: readonly {
    readonly where: string;
    readonly program: Program;
    readonly port: number;
    readonly authority: Authority;
    readonly good: IdentityOptions;
    readonly alpn: string | undefined;
  }[];

  before(async () => {
    scope = new Scope();
    const peerPort = await freePort();
    trust = await newTrust(scope);
    // One server for each protocol: the log names only ten refusals a minute for each port.
    const [server, other] = await Promise.all([serverWithAdmin(scope, trust), serverWithAdmin(scope, trust)]);
    const plane = await split(scope, {
      gateways: 1,
      hubs: 1,
      agents: 1,
      hubFlags: { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` },
    });
    const hub = plane.hubs[0]!.program;
    const gateway = { hosts: [{ type: 'dns', value: 'isthmus-gateway' }], uses: ['client'] } satisfies IdentityOptions;
    const portsOf = ({ program, mtls, agentPort, adminPort }: typeof server, alpn?: string) => [
      { where: 'callers', program, port: mtls.port, authority: trust.callers, good: {}, alpn },
      { where: 'agents', program, port: agentPort, authority: trust.agents, good: {}, alpn },
      { where: 'admin', program, port: adminPort, authority: trust.callers, good: {}, alpn },
    ];
    const overHttp2 = [
      ...portsOf(other, 'h2'),
      { where: 'peers', program: hub, port: peerPort, authority: plane.trust.peers, good: gateway, alpn: 'h2' },
    ];
    // Deno 2.9's own HTTP/2 client loops forever on a connection that ends with its first answer.
    ports = 'Deno' in globalThis ? portsOf(server) : [...portsOf(server), ...overHttp2];
  });
  after(() => scope[Symbol.asyncDispose]());

  /** @returns the text of the log line */
  async function refusedAt(
    { where, program, port, authority, alpn }: (typeof ports)[number],
    identity: Identity | undefined,
    says: RegExp,
  ): Promise<string> {
    // An earlier connection may have had the same local port, to another port of the same program.
    const before = new Set(program.logs);
    const { from, said } = await answerAt(port, authority.cert, identity, alpn);
    const tells = (line: LogLine) => line.msg === 'refused' && line.remote === from && !before.has(line);
    const line = await program.waitForLog(tells, { what: `${where} ${alpn}: a line for ${from}` });
    assert.match(String(line.text), says, `${where} ${alpn}`);
    assert.equal(String(line.where), where);
    if (alpn !== 'h2') assert.match(said, /^HTTP\/1.1 403 Forbidden\r\n/, `${where} ${alpn}`);
    assert.match(said, says, `${where} ${alpn}`);
    return String(line.text);
  }

  for (const [fault, says, make] of FAULTS) {
    it(`one that is ${fault}, on every port`, async () => {
      for (const each of ports) {
        const { where, alpn, authority, good } = each;
        const identity = await make(authority, good);
        const text = await refusedAt(each, identity, says);
        if (identity) assert.match(text, /CN=ann, serial [0-9A-F]{8}/, `${where} ${alpn}`);
      }
    });
  }

  for (const [fault, says, make] of NAMELESS) {
    it(`one that has no subject and ${fault}, on every port, which goes on serving`, async () => {
      for (const each of ports) {
        await refusedAt(each, await make(each.authority), says);
        await refusedAt(each, undefined, /this port requires a client certificate/);
      }
    });
  }

  it("in the agent's own log too", async () => {
    const server = await startServer(scope, trust);
    for (const [fault, says, make] of FAULTS) {
      const identity = await make(trust.agents, {});
      const shown = identity
        ? { 'agent-cert': identity.cert, 'agent-key': identity.key }
        : { 'agent-cert': undefined, 'agent-key': undefined };
      const agent = await startAgent(scope, trust, server.agentPort, shown);
      const line = await agent.waitForLog(({ msg }) => msg === 'server connection failed', {
        what: `${fault}: a line`,
      });
      assert.match(String(line.text), says, fault);
      const warned = agent.logs.filter(({ msg }) => /^own certificate/.test(String(msg))).map(({ msg }) => msg);
      const expected = { expired: 'own certificate has expired', 'not yet valid': 'own certificate is not valid yet' }[
        fault
      ];
      assert.deepEqual(
        warned.map((msg) => String(msg).split(':')[0]),
        expected ? [expected] : [],
        fault,
      );
    }
  });
});
