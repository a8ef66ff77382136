import assert from 'node:assert/strict';
import type { OutgoingHttpHeaders } from 'node:http2';
import test from 'node:test';
import { blackHole, echo, freePort, mostKept, Scope, source, split, until, within } from '../harness/index.ts';
import { type Claim, ForgedHalf, forgedLink } from './forged-half.ts';
import { ask, openLink } from './gateway-link.ts';
import { attack, bystander, refusals, refused } from './rig.ts';

const SOMEONE = 'ffffffffffffffff';

const KIB = 1024;
/** The agent's `--resume-memory`, in MiB. */
const RESUME_MEMORY = 1;
/** How many tunnels of one gateway are never acknowledged. */
const DEAF = 8;
/** What they may make the agent keep. */
const MOST_KEPT = mostKept(DEAF, RESUME_MEMORY);

/** Attaches after `hello` was sent, echoed and acknowledged. */
const UNTRUE: readonly [name: string, claim: Claim, why: RegExp][] = [
  ['with a wrong secret', { secret: 'f'.repeat(32) }, /no such tunnel/],
  ['with more bytes received than were sent', { received: 6 }, /in disorder: it got 6 of 5 bytes/],
  ['with more bytes taken than were sent', { taken: 6 }, /in disorder: it took 6 of 5 bytes/],
  ['with an end before what was sent', { final: 4 }, /in disorder: it cannot end at byte 4/],
];

test('a gateway that misuses its link is answered and disturbs nothing', async (t) => {
  await using scope = new Scope();
  const peerPort = await freePort();
  const plane = await split(scope, {
    gateways: 1,
    hubs: 1,
    agents: 1,
    agentFlags: { 'resume-memory': RESUME_MEMORY },
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

  const session = String(opened.session);
  const way = async (scope: Scope) => ({ link: await forgedLink(scope, peerPort, peers.cert, identity), session });
  /** A tunnel that has echoed `hello`. The agent knows that this arrived. */
  const greeted = async (scope: Scope) => {
    const half = await ForgedHalf.begin(await way(scope), destination.authority);
    await half.echoes('hello');
    half.acknowledge();
    return half;
  };
  for (const [name, claim, why] of UNTRUE) {
    await attack(t, victim, `an attach ${name}`, async (scope) => {
      const half = await greeted(scope);
      const other = await way(scope);
      await refused(agent, 'attach', () => assert.rejects(half.attach(other, claim), why));
      await half.echoes('the true tunnel goes on');
      half.abort();
    });
  }

  await attack(t, victim, 'an attach that wants bytes again which it has acknowledged', async (scope) => {
    const half = await greeted(scope);
    // The mark has arrived when a later byte is back.
    await half.echoes('more');
    await half.attach(await way(scope), { received: 0, taken: 0 });
    assert.equal(half.answer?.from, 5, 'the agent goes on behind what was acknowledged');
    await until(() => half.text === 'more', { what: () => `what was not acknowledged, and not ${half.text}` });
    await half.echoes('the true tunnel goes on');
    half.abort();
  });

  await attack(t, victim, 'a thousand attaches of one tunnel at once', async (scope) => {
    const half = await greeted(scope);
    const other = await way(scope);
    const before = await refusals(agent, 'attach');
    const begin = performance.now();
    const results = await Promise.allSettled(Array.from({ length: 1000 }, () => half.attach(other)));
    const accepted = results.filter(({ status }) => status === 'fulfilled').length;
    // 10 at once, and 5 a second.
    const most = 10 + (5 * (performance.now() - begin)) / 1000;
    assert.ok(accepted >= 1 && accepted <= most, `${accepted} of 1000 were accepted`);
    assert.equal(await refusals(agent, 'attach'), before + 1000 - accepted);
    await half.echoes('the true tunnel goes on');
    half.abort();
  });

  await attack(t, victim, 'a thousand attaches that guess secrets', async (scope) => {
    const half = await greeted(scope);
    const before = await refusals(agent, 'attach');
    const other = await way(scope);
    const guess = (index: number) => half.attach(other, { secret: index.toString(16).padStart(32, '0') });
    const results = await Promise.allSettled(Array.from({ length: 1000 }, (_, index) => guess(index)));
    assert.ok(results.every(({ status }) => status === 'rejected'));
    assert.equal(await refusals(agent, 'attach'), before + 1000);
    await half.echoes('the true tunnel goes on');
    half.abort();
  });

  await attack(t, victim, `${DEAF} downloads that it never acknowledges, and then it is gone`, async (scope) => {
    const kept = () => agent.value('isthmus_resume_kept_bytes');
    const endless = await source(scope, 64 * KIB * KIB);
    const { link } = await way(scope);
    const halves = await Promise.all(
      Array.from({ length: DEAF }, () => ForgedHalf.begin({ link, session }, endless.authority)),
    );
    const sent = () => halves.reduce((sum, { received }) => sum + received, 0);
    // The agent waits for a word about what it has sent. A write that was under way when it asked may follow.
    const waits = ({ told, received }: ForgedHalf) => told?.ask !== undefined && received >= told.ask;
    await until(() => halves.every(waits), { what: 'an agent that asks what was taken' });
    await victim.unharmed();
    assert.ok(sent() >= DEAF * 256 * KIB && sent() <= MOST_KEPT, `${sent()} bytes have come`);
    const bytes = await kept();
    assert.ok(bytes >= DEAF * 256 * KIB && bytes <= MOST_KEPT, `${bytes} bytes are kept`);
    // Who acknowledges gets more.
    const [first] = halves as [ForgedHalf];
    const at = first.received;
    first.acknowledge();
    await until(() => first.received > at, { what: 'more, after an acknowledgement' });
    link.destroy(new Error('the gateway is gone'));
    await until(() => endless.open === 0, { what: 'the end of what it dialled' });
    await until(async () => (await kept()) < 256 * KIB, { what: 'the end of what was kept for it' });
  });
});
