import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import type { HubRecord, HubRegistration } from '../registry.ts';
import { hubRecord, Observer, sessionRecord } from '../testing/observer.ts';
import { type RedisGroup, startCluster, startSentinels } from '../testing/redis-groups.ts';
import { RedisPlane, timesOfSuite } from '../testing/redis-plane.ts';
import { PLANE_USER, planeUserArgs, type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';
import { relayTo } from '../testing/tcp-relay.ts';

/** The sessions once the outage is over. */
const AFTER = 'comes,other,stays,third';

interface Outage {
  readonly url: string;
  begin(plane: string): unknown;
  /** Resolves when it has lasted long enough to be felt by a watcher that started during it. */
  lasts?(late: Observer): Promise<void>;
  /** Resolves when the store is back. */
  end(plane: string): unknown;
  /** Called after the outage, to let a failed server come back. That must disturb nothing. */
  after?(): void;
  stop(): Promise<void>;
  /** Set if the outage may pass unnoticed while it lasts. Default: everyone notices it. */
  readonly unnoticed?: true;
}

/** Times are those of production, but a withdrawal waits for nothing, so that it always falls into the outage. */
const TIMES = { flapMs: 0 };

/** One hub of a plane, the health it reports, and the sessions it announces. */
class Member {
  readonly states: boolean[] = [];
  readonly registration: HubRegistration;
  readonly hub: HubRecord;

  constructor(plane: RedisPlane, hubId: string) {
    this.hub = hubRecord(hubId);
    this.registration = plane.connect().register(this.hub, (up) => this.states.push(up));
  }

  announce(session: string): void {
    this.registration.announce(sessionRecord(this.hub, session));
  }
}

/** Runs an outage: two hubs and a watcher that start before it, and a hub and a watcher that start during it. */
async function survives(outage: Outage): Promise<void> {
  const plane = new RedisPlane(outage);
  const watchers: Observer[] = [];
  const watch = () => watchers[watchers.push(new Observer(plane.connect())) - 1] as Observer;
  const all = async (sessions: string) => {
    for (const watcher of watchers) await watcher.until(sessions, () => watcher.sessionIds.join() === sessions);
  };
  try {
    const [first, second] = [new Member(plane, 'h1'), new Member(plane, 'h2')];
    const early = watch();
    for (const session of ['leaves', 'stays']) first.announce(session);
    second.announce('other');
    await all('leaves,other,stays');

    await outage.begin(plane.name);
    first.announce('comes');
    first.registration.withdraw('leaves', 2);
    const third = new Member(plane, 'h3');
    third.announce('third');
    const late = watch();
    if (!outage.unnoticed) {
      const hear = () => [first, third].every(({ states }) => states.at(-1) === false);
      await until(hear, 'reports that the first and the third hub cannot write');
      await early.until('the outage', () => early.states.at(-1)?.up === false);
      assert.equal(late.snapshots, 0, 'a watcher that starts during the outage gets no snapshot');
      assert.deepEqual(early.sessionIds, ['leaves', 'other', 'stays']);
    }
    await outage.lasts?.(late);

    await outage.end(plane.name);
    await all(AFTER);
    outage.after?.();
    first.announce('afterwards');
    await all('afterwards,comes,other,stays,third');
    assert.deepEqual(early.gone, ['leaves']);
  } finally {
    for (const watcher of watchers) watcher.stop();
    await plane.close();
    await outage.stop();
  }
}

async function standalone(
  fault: (server: RedisServer) => Pick<Outage, 'begin' | 'lasts' | 'end' | 'unnoticed'>,
): Promise<Outage> {
  const server = await startRedis({ args: planeUserArgs });
  const url = server.url.replace('//', `//${PLANE_USER.name}:${PLANE_USER.password}@`);
  return { url, stop: () => server.stop(), ...fault(server) };
}

/** The server in charge of the plane's keys dies or hangs. The outage ends when another server is in charge. */
async function failover(group: Promise<RedisGroup>, how: 'dies' | 'hangs'): Promise<Outage> {
  const { url, inCharge, stop } = await group;
  let failed: RedisServer | undefined;
  return {
    url,
    stop,
    // Another server may take over before anyone needs the failed one.
    unnoticed: true,
    async begin(plane) {
      failed = await inCharge(`{${plane}}:meta`);
      assert.ok(failed);
      if (how === 'dies') await failed.kill();
      else failed.pause();
    },
    async end(plane) {
      const another = async () => {
        const now = await inCharge(`{${plane}}:meta`);
        return now !== undefined && now !== failed;
      };
      await until(another, 'another in charge');
    },
    after: () => how === 'hangs' && failed?.resume(),
  };
}

describe('registry through an outage', { skip: redisMissing(), concurrency: true }, () => {
  timesOfSuite(TIMES);

  const outageOf = (name: string, fault: Parameters<typeof standalone>[0]) =>
    it(name, async () => survives(await standalone(fault)));

  outageOf('Redis is killed and comes back empty', (server) => ({
    begin: () => server.kill(),
    end: () => server.restart(),
  }));

  outageOf('Redis hangs', (server) => ({ begin: () => server.pause(), end: () => server.resume() }));

  outageOf('the user of the plane loses all rights', (server) => ({
    begin: () => server.command(`ACL SETUSER ${PLANE_USER.name} -@all`),
    end: () => server.command(`ACL SETUSER ${PLANE_USER.name} ${PLANE_USER.rules}`),
  }));

  outageOf("the user's password changes", (server) => ({
    async begin() {
      await server.command(`ACL SETUSER ${PLANE_USER.name} resetpass >other`);
      await server.command(`CLIENT KILL USER ${PLANE_USER.name}`);
    },
    end: () => server.command(`ACL SETUSER ${PLANE_USER.name} resetpass >${PLANE_USER.password}`),
  }));

  outageOf('Redis is out of memory', (server) => ({
    // What hubs write begins with something that Redis still takes (scripts.ts), and then it takes the rest.
    unnoticed: true,
    lasts: (late) => late.until('what is written without memory', () => late.sessionIds.join() === AFTER),
    begin: () => server.command('CONFIG SET maxmemory 1'),
    end: () => server.command('CONFIG SET maxmemory 0'),
  }));

  it('survives answers that take half a second longer', async () => {
    const server = await startRedis();
    const relay = await relayTo(server.port);
    const delay = (ms: number) => {
      relay.delayMs = ms / 2;
    };
    const stop = async () => {
      await relay.close();
      await server.stop();
    };
    const lasts = (late: Observer) => late.until('a slow snapshot', () => late.snapshots > 0);
    const [begin, end] = [() => delay(500), () => delay(0)];
    await survives({ url: relay.url, unnoticed: true, begin, lasts, end, stop });
  });

  // libfaketime cannot be loaded beside the jemalloc of Debian's Redis. This is all that a plane sees of such a clock jump.
  outageOf('every record expires at once, as when the clock of the host jumps ahead', (server) => ({
    unnoticed: true,
    begin: (plane) => server.command(`DEL {${plane}}:hub:h1 {${plane}}:hub:h2`),
    end() {},
  }));
});

// One at a time: each runs half a dozen servers that use the clock to agree on who is in charge.
describe('registry through a failover', { skip: redisMissing() }, () => {
  timesOfSuite(TIMES);

  for (const how of ['dies', 'hangs'] as const) {
    it(`survives if the primary behind Sentinels ${how}`, async () => survives(await failover(startSentinels(), how)));
    it(`survives if the primary of a Cluster's slot ${how}`, async () => survives(await failover(startCluster(), how)));
  }
});
