import assert from 'node:assert/strict';
import test from 'node:test';
import { allInOne, echo, Scope, until } from '../harness/index.ts';
import { settings } from './frames.ts';
import { rogueAgent, upgrade } from './links.ts';
import { attack, bystander, raw, refused, saidUntilEnd } from './rig.ts';

const HELLO = { 'isthmus-agent': 'rogue' };

/** What may arrive on the agents' port that is not an agent's hello. */
const REFUSED: readonly [name: string, request: string, answer: RegExp][] = [
  ['another path', upgrade(HELLO).replace('/isthmus/link', '/elsewhere'), /^HTTP\/1\.1 404 /],
  ['another protocol', upgrade(HELLO).replace('isthmus-link/1', 'websocket'), /^HTTP\/1\.1 404 /],
  ['a later protocol', upgrade(HELLO).replace('isthmus-link/1', 'isthmus-link/2'), /^HTTP\/1\.1 404 /],
  ['no id', upgrade({}), /^HTTP\/1\.1 400 .*agent%20id/s],
  ['two Hosts', upgrade(HELLO).replace('\r\n', '\r\nHost: x\r\nHost: y\r\n'), /^HTTP\/1\.1 400 .*Host/s],
  ['an empty id', upgrade({ 'isthmus-agent': '' }), /^HTTP\/1\.1 400 /],
  ['two ids', upgrade(HELLO).replace('\r\n\r\n', '\r\nisthmus-agent: other\r\n\r\n'), /^HTTP\/1\.1 400 /],
  ['an id that is not encoded', upgrade({ 'isthmus-agent': '%zz' }), /^HTTP\/1\.1 400 /],
  ['a tenant that is not encoded', upgrade({ ...HELLO, 'isthmus-tenant': '%' }), /^HTTP\/1\.1 400 /],
  ['malformed identifiers', upgrade({ ...HELLO, 'isthmus-identifiers': 'ipv4%3D%25zz' }), /^HTTP\/1\.1 400 /],
  ['identifiers with a semicolon', upgrade({ ...HELLO, 'isthmus-identifiers': 'a%3D1%3Bb%3D2' }), /^HTTP\/1\.1 400 /],
  [
    'identifiers of 100 KiB',
    upgrade({ ...HELLO, 'isthmus-identifiers': 'x'.repeat(102_400) }),
    /^HTTP\/1\.1 (400|431) /,
  ],
  ['a page', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 404 /],
  ['a CONNECT', 'CONNECT localhost:1 HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 40[045] /],
  ['a NUL', 'GET /\0 HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 400 /],
];

test('a client that is not an agent is answered on the agents’ port and disturbs nothing', async (t) => {
  await using scope = new Scope();
  const { server, agents } = await allInOne(scope, {
    serverFlags: { 'cluster-cert': undefined, 'cluster-key': undefined, 'cluster-ca-cert': undefined },
    agentFlags: { 'ca-cert': undefined, 'agent-cert': undefined, 'agent-key': undefined },
  });
  const { program, agentPort: port } = server;
  const destination = await echo(scope);
  const victim = await bystander(scope, server.connect, destination.authority, [program, ...agents]);
  for (const [name, request, answer] of REFUSED) {
    await attack(t, victim, name, (scope) =>
      refused(program, 'agents', async () => {
        const socket = await raw(scope, { port });
        socket.write(request);
        assert.match(await saidUntilEnd(socket), answer);
      }),
    );
  }
});

test('300 links over TLS that send bytes in the same write as their heads do not end the hub', async (t) => {
  await using scope = new Scope();
  const { server, agents, trust } = await allInOne(scope);
  const { program } = server;
  const destination = await echo(scope);
  const victim = await bystander(scope, server.connect, destination.authority, [program, ...agents]);
  await attack(t, victim, 'ten at a time', async (scope) => {
    const identity = await trust.agents.client('rogue');
    const one = async (index: number) => {
      const glued = Buffer.concat([settings(), settings([3, 100])]);
      const options = { identity, glued };
      const link = await rogueAgent(scope, trust, server.agentPort, `brief-${index}`, options);
      if (index % 3 > 0) await until(() => link.frames.length > 0, { what: 'a frame of the hub' });
      link.socket.destroy();
    };
    for (let i = 0; i < 300; i += 10) await Promise.all(Array.from({ length: 10 }, (_, k) => one(i + k)));
  });
});
