import { PLANE_USER, planeUserArgs, type RedisServer, startSentinels } from '@isthmus/directory/testing/servers';
import { isUp, type Member, relayTo, type Scope } from '../../harness/index.ts';
import { clock } from '../../rig/clock.ts';
import { gatewayOf, type Plane, redisFor, startPlane, whole } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';

/** A running registry, and how to begin and end its outage. */
interface Outage {
  readonly url: string;
  begin(): unknown;
  end(): unknown;
}

interface OutageKind {
  readonly name: string;
  readonly fault: string;
  start(scope: Scope): Promise<Outage>;
}

/** Delay in each direction, in milliseconds: an answer comes 500 ms later. */
const SLOW_MS = 250;

const outages: readonly OutageKind[] = [
  {
    name: 'redis-kill',
    fault: 'Redis SIGKILL, restarted with its data',
    async start(scope) {
      const server = await redisFor(scope, { args: ['--appendonly', 'yes'] });
      return { url: server.url, begin: () => server.kill(), end: () => server.restart() };
    },
  },
  {
    name: 'redis-empty',
    fault: 'Redis SIGKILL, restarted empty',
    async start(scope) {
      const server = await redisFor(scope);
      return { url: server.url, begin: () => server.kill(), end: () => server.restart() };
    },
  },
  {
    name: 'redis-stop',
    fault: 'Redis SIGSTOP, then SIGCONT',
    async start(scope) {
      const server = await redisFor(scope);
      return { url: server.url, begin: () => server.pause(), end: () => server.resume() };
    },
  },
  {
    name: 'redis-slow',
    fault: 'Redis 500 ms slower',
    async start(scope) {
      const relay = await relayTo(scope, (await redisFor(scope)).port);
      const delay = (ms: number) => {
        relay.delayMs = ms;
      };
      return { url: `redis://${relay.authority}`, begin: () => delay(SLOW_MS), end: () => delay(0) };
    },
  },
  {
    name: 'redis-acl',
    fault: 'Redis rejects every command (ACL)',
    async start(scope) {
      const server = await redisFor(scope, { args: planeUserArgs });
      const { name, password, rules } = PLANE_USER;
      const set = (what: string) => expectOk(server, `ACL SETUSER ${name} ${what}`);
      const url = `redis://${name}:${password}@127.0.0.1:${server.port}`;
      return { url, begin: () => set('-@all'), end: () => set(rules) };
    },
  },
  {
    name: 'redis-memory',
    fault: 'Redis out of memory (maxmemory, noeviction)',
    async start(scope) {
      const server = await redisFor(scope);
      const limit = (bytes: number) => expectOk(server, `CONFIG SET maxmemory ${bytes}`);
      return { url: server.url, begin: () => limit(1), end: () => limit(0) };
    },
  },
  {
    name: 'redis-sentinel',
    fault: 'Redis primary SIGKILL, its replica takes over by Sentinel',
    async start(scope) {
      const group = await startSentinels();
      scope.defer(() => group.stop());
      const primary = (await group.inCharge('')) as RedisServer;
      return { url: group.url, begin: () => primary.kill(), end: () => primary.restart() };
    },
  },
];

async function expectOk(server: RedisServer, command: string): Promise<void> {
  const answer = await server.command(command);
  if (answer !== '+OK') throw new Error(`Redis answered ${answer} to ${command}`);
}

const CONVERGED_WITHIN = 3000;

interface OutagePlane extends Plane {
  readonly outage: Outage;
}

function rowOf({ name, fault, start }: OutageKind): Row<OutagePlane> {
  return {
    name,
    fault,
    holds: '0 failed dials to live sessions; changes during the outage are known within 3 s of its end',
    bounds: {},
    async topology(scope) {
      const outage = await start(scope);
      return { ...(await startPlane(scope, { registryUrl: outage.url })), outage };
    },
    async inject(context) {
      const { plane, hold, measure } = context;
      await plane.outage.begin();
      await hold(5000, 1000);
      await changeAgent(context);
      const late = await lateGateway(context);
      await hold(15_000, 2000);
      const ready = (await late.program.get('/readyz')).status === 200;
      const over = clock();
      await plane.outage.end();
      await whole(plane);
      measure('changes known after', clock() - over, 'ms', CONVERGED_WITHIN);
      await late.program.waitReady();
      const became = ready ? 'was ready throughout, checked' : 'was not ready, then ready';
      measure(`a gateway started during the outage ${became} after`, clock() - over, 'ms');
      await late.kill();
    },
  };
}

/** Kills and restarts an agent: its old sessions are gone, and gateways cannot learn of the new ones. */
async function changeAgent({ plane, strike }: Context<OutagePlane>): Promise<void> {
  const agent = plane.agents.at(-1) as Member;
  await strike({ takes: ({ agentId }) => agentId === agent.id }, () => agent.kill());
  await agent.restart();
}

async function lateGateway({ plane, scope }: Context<OutagePlane>): Promise<Member> {
  const flags = { v: 1, 'redis-url': plane.outage.url, plane: 'rig' };
  const { member } = await gatewayOf(scope, plane.trust, plane.gateways.length, { flags });
  await isUp(member.program);
  return member;
}

export const registryRows: readonly Row<OutagePlane>[] = outages.map(rowOf);
