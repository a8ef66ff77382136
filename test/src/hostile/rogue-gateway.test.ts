import assert from 'node:assert/strict';
import type { OutgoingHttpHeaders } from 'node:http2';
import test from 'node:test';
import { blackHole, echo, freePort, Scope, split, within } from '../harness/index.ts';
import { ask, openLink } from './gateway-link.ts';
import { attack, bystander, refused } from './rig.ts';

const SOMEONE = 'ffffffffffffffff';

test('a gateway that misuses its link is answered and disturbs nothing', async (t) => {
  await using scope = new Scope();
  const peerPort = await freePort();
  const plane = await split(scope, {
    gateways: 1,
    hubs: 1,
    agents: 1,
    hubFlags: { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` },
  });
  const [gateway, hub, agent] = [plane.gateways[0]!, plane.hubs[0]!, plane.agents[0]!];
  const { peers } = plane.trust;
  const destination = await echo(scope);
  const victim = await bystander(scope, gateway.connect, destination.authority, [gateway.program, hub.program, agent]);
  const opened = await hub.program.waitForLog(({ msg }) => msg === 'session opened', { what: 'the session' });
  const identity = await peers.peer(['gateway']);
  const open = (scope: Scope) => openLink(scope, peerPort, peers.cert, identity);
  const dial = (more: OutgoingHttpHeaders = {}): OutgoingHttpHeaders => ({
    ':method': 'CONNECT',
    ':authority': destination.authority,
    'isthmus-dial': '0123456789abcdef',
    'isthmus-tenant': 'default',
    'isthmus-deadline': '30000',
    'isthmus-session': String(opened.session),
    ...more,
  });

  const malformed: readonly [name: string, head: OutgoingHttpHeaders][] = [
    ['without our fields', { ':method': 'CONNECT', ':authority': destination.authority }],
    ['with a deadline that has passed', dial({ 'isthmus-deadline': '-5' })],
    ['with an invalid deadline', dial({ 'isthmus-deadline': 'soon' })],
    ['with an invalid dial id', dial({ 'isthmus-dial': '../..' })],
    ['to no destination', dial({ ':authority': 'x' })],
  ];
  for (const [name, head] of malformed) {
    await attack(t, victim, `a dial ${name}`, (scope) =>
      refused(hub.program, 'hub link', async () => assert.equal(await ask(await open(scope), head), 400)),
    );
  }
  const elsewhere: readonly [name: string, head: OutgoingHttpHeaders, status: number][] = [
    ["through another tenant's session", dial({ 'isthmus-tenant': 'other' }), 503],
    ['through a session that does not exist', dial({ 'isthmus-session': SOMEONE }), 503],
    ['with an endless deadline', dial({ 'isthmus-deadline': '1e308' }), 200],
  ];
  for (const [name, head, status] of elsewhere) {
    await attack(t, victim, `a dial ${name}`, async (scope) =>
      assert.equal(await ask(await open(scope), head), status),
    );
  }

  await attack(t, victim, 'one dial twice, two control streams, and pages', async (scope) => {
    const link = await open(scope);
    assert.equal(await ask(link, dial()), 200);
    assert.equal(await ask(link, dial()), 200);
    assert.equal(await ask(link, { ':method': 'POST', ':path': '/control' }), 200);
    assert.equal(await ask(link, { ':method': 'POST', ':path': '/control' }), 404);
    assert.equal(await ask(link, { ':path': '/' }), 405);
  });

  await attack(t, victim, '300 dials to a black hole at once, and then the gateway is gone', async (scope) => {
    const link = await open(scope);
    const hole = await blackHole(scope);
    for (let i = 0; i < 300; i++) {
      const id = i.toString(16).padStart(16, '0');
      link.request(dial({ ':authority': hole, 'isthmus-dial': id }), { endStream: false }).on('error', () => {});
    }
    await within(new Promise((resolve) => link.ping(resolve)), {
      what: 'a PING behind 300 dials',
    });
    link.destroy();
    await victim.unharmed();
    const again = await open(scope);
    assert.equal(await ask(again, dial()), 200, 'the next dial is served');
  });
});
