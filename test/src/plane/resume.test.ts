import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  Digest,
  echo,
  type LogLine,
  type Member,
  mostKept,
  type Scope,
  scoped,
  source,
  until,
  within,
} from '../harness/index.ts';
import { adminOf, carries, closed, dial } from './dials.ts';
import { type HubPlane, linesFromNow, sharedHubPlane, wholeAgain } from './hub-plane.ts';

const skip = redisMissing();

/** How often a hub is killed below one tunnel: more than there are hubs, so that one is hit again. */
const KILLS = 3;

const MIB = 1 << 20;

/** Bytes of a download that are sent between two kills: more than the way holds, so that a hub is killed in the middle of them. */
const PORTION = 16 * MIB;

/** In milliseconds, after SIGTERM. */
const DRAINED_WITHIN = 10_000;

/** Tunnels on a hub that dies, and how many of them have callers that read nothing meanwhile. */
const [MANY, UNREAD] = [500, 16];

/** `--resume-memory`, in MiB. */
const RESUME_MEMORY = 2;

/** What the unread ones may keep. */
const MOST_KEPT = mostKept(UNREAD, RESUME_MEMORY);

const plane = sharedHubPlane({
  hubs: 2,
  hubFlags: { 'graceful-shutdown-timeout': '1h' },
  gatewayFlags: { 'resume-memory': RESUME_MEMORY },
  agentFlags: { v: 5, 'resume-memory': RESUME_MEMORY },
});

/** The hub that carries the only tunnel. */
function carrier(scope: Scope, { gateway, hubs }: HubPlane): Promise<Member> {
  const look = async () => {
    const { tunnels } = await adminOf(scope, gateway.program).listTunnels({});
    return hubs.find(({ id }) => id === tunnels[0]?.hubId);
  };
  return until(look, { what: 'a hub that carries the tunnel' });
}

/** Reads until the end. @param digest of what has arrived */
async function read(tunnel: Duplex, digest: Digest): Promise<void> {
  tunnel.on('data', (chunk: Buffer) => digest.update(chunk)).resume();
  await within(new Promise<void>((resolve, reject) => tunnel.once('end', resolve).once('error', reject)), {
    deadline: 300_000,
    what: 'the end of the download',
  });
}

/** Dials one after the other: many at once would wait for each other's handshakes. */
async function times<T>(count: number, make: () => Promise<T>): Promise<T[]> {
  const made: T[] = [];
  while (made.length < count) made.push(await make());
  return made;
}

/** Waits until a member has logged the end of a tunnel with this reason. */
async function closedWith({ program }: Member, reason: RegExp): Promise<void> {
  const isEnd = ({ msg, text }: LogLine) => msg === 'tunnel closed' && reason.test(String(text));
  await program.waitForLog(isEnd, { what: `a tunnel that closed with ${reason}` });
}

test(
  'a tunnel outlives its hub, which is killed again and again',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const tunnel = await dial(scope, all.ways, 'connect', (await echo(scope)).authority);
    await carries(tunnel, 'before');
    for (let killed = 0; killed < KILLS; killed++) {
      const hub = await carrier(scope, all);
      await hub.kill();
      await carries(tunnel, `after ${killed}`);
      assert.notEqual((await carrier(scope, all)).id, hub.id);
      await hub.restart();
      await wholeAgain(all);
    }
    tunnel.destroy();
  }),
);

test(
  'a download goes on while one hub after the other is killed, every byte in its place',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const bytes = (KILLS + 1) * PORTION;
    const destination = await source(scope, bytes, { portion: PORTION });
    const tunnel = await dial(scope, all.ways, 'connect', destination.authority);
    const digest = new Digest();
    const done = read(tunnel, digest);
    for (let killed = 0; killed < KILLS; killed++) {
      const hub = await carrier(scope, all);
      await until(() => digest.bytes > killed * PORTION, { what: 'some of the next bytes' });
      await hub.kill();
      await hub.restart();
      await wholeAgain(all);
      destination.release();
    }
    await done;
    assert.equal(`${digest}`, `${bytes} ${destination.sha256}`);
  }),
);

test(
  `${MANY} tunnels go on when their hub dies, and what is kept for them stays within its bound`,
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const said = linesFromNow(all.gateway);
    const [quiet, endless] = [await echo(scope), await source(scope, 4 * MIB)];
    const tunnels = await times(MANY - UNREAD, () => dial(scope, all.ways, 'connect', quiet.authority));
    await Promise.all(tunnels.map((tunnel) => carries(tunnel, 'before')));
    const unread = await times(UNREAD, () => dial(scope, all.ways, 'connect', endless.authority));
    const members = [all.gateway, all.agent];
    const kept = () => Promise.all(members.map((member) => member.value('isthmus_resume_kept_bytes')));
    let most = 0;
    const look = async () => {
      most = Math.max(most, ...(await kept()));
      return most;
    };
    await until(async () => (await look()) >= UNREAD * 256 * 1024, { what: 'an agent that keeps what it may' });
    const onHub = async (id: string) => (await all.gateway.tunnels()).filter(({ hubId }) => hubId === id).length;
    const counts = await Promise.all(all.hubs.map(({ id }) => onHub(id)));
    const hub = all.hubs[counts.indexOf(Math.max(...counts))] as Member;
    await hub.kill();
    await until(
      async () => {
        await look();
        return (await onHub(hub.id)) === 0;
      },
      { what: 'no tunnel on the hub that is gone' },
    );
    await Promise.all(tunnels.map((tunnel) => carries(tunnel, 'after')));
    const digests = await Promise.all(
      unread.map(async (tunnel) => {
        const digest = new Digest();
        await read(tunnel, digest);
        return `${digest}`;
      }),
    );
    assert.deepEqual(new Set(digests), new Set([`${4 * MIB} ${endless.sha256}`]));
    await look();
    assert.ok(most <= MOST_KEPT, `${most} bytes were kept: the most is ${MOST_KEPT}`);
    assert.deepEqual(
      said('tunnel closed').filter(({ cut }) => cut),
      [],
    );
    assert.equal(quiet.open, tunnels.length);
    for (const tunnel of tunnels) tunnel.destroy();
    await hub.restart();
  }),
);

test(
  'a hub that drains has ended within 10 s, and its tunnels, which could live for hours, go on elsewhere',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const said = linesFromNow(all.gateway);
    const destination = await echo(scope);
    const tunnels = await Promise.all(
      Array.from({ length: 20 }, () => dial(scope, all.ways, 'connect', destination.authority)),
    );
    await Promise.all(tunnels.map((tunnel) => carries(tunnel, 'before')));
    for (const hub of all.hubs) {
      await hub.roll(DRAINED_WITHIN);
      await Promise.all(tunnels.map((tunnel) => carries(tunnel, `after ${hub.id}`)));
      await wholeAgain(all);
    }
    assert.equal(destination.open, tunnels.length);
    // On a busy machine, a tunnel may have lost its hub a moment before it moves.
    const moved = () => said('tunnel moved').length + said('tunnel resumed').length > 0;
    await until(moved, { what: 'a line about a tunnel that was moved' });
    assert.deepEqual(
      said('tunnel closed').filter(({ cut }) => cut),
      [],
    );
    for (const tunnel of tunnels) tunnel.destroy();
    await until(() => destination.open === 0, { what: 'the end at the destination' });
  }),
);

test(
  'a tunnel ends at once when its agent is killed, and its destination when its gateway is',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const destination = await echo(scope);
    const tunnel = await dial(scope, all.ways, 'connect', destination.authority);
    await carries(tunnel);
    await all.gateway.kill();
    await until(() => destination.open === 0, { what: 'the end at the destination' });
    await closedWith(all.agent, /the gateway has closed all its connections/);
    await all.gateway.restart();
    await wholeAgain(all);
    const next = await dial(scope, all.ways, 'connect', destination.authority);
    await carries(next);
    await all.agent.kill();
    await closed(next);
    await closedWith(all.gateway, /agent agent has closed all its connections/);
    await all.agent.restart();
  }),
);

test(
  'an operator who kicks an agent ends its tunnels, though it has other sessions',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const tunnel = await dial(scope, all.ways, 'connect', (await echo(scope)).authority);
    await carries(tunnel, 'before');
    let ended = false;
    for (const event of ['end', 'close', 'error']) {
      tunnel.once(event, () => {
        ended = true;
      });
    }
    tunnel.resume();
    const target = { $case: 'agent', value: { tenant: '', agentId: 'agent' } } as const;
    const kicked = async () => {
      const hub = await carrier(scope, all);
      return (await adminOf(scope, hub.program).kick({ target })).tunnels === 1;
    };
    // On a busy machine, the tunnel may move to another hub between the look and the kick.
    await until(kicked, { what: 'the kick of an agent with the tunnel' });
    await until(() => ended, { what: 'the end of the tunnel' });
    const left = async () => (await adminOf(scope, all.gateway.program).listTunnels({})).tunnels.length;
    await until(async () => (await left()) === 0, { what: 'the end of the tunnel at the gateway' });
  }),
);
