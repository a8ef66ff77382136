import { connect } from 'node:net';
import type { RedisServerOptions } from '@isthmus/registry/testing';
import { peerFlags, type Scope, until } from '../../harness/index.ts';
import { clock } from '../clock.ts';
import type { Member } from '../members.ts';
import type { Context, Row } from '../row.ts';
import { gatewayOf, type SplitPlane, splitPlane } from '../split-plane.ts';

const CONVERGED_WITHIN = 3000;
const HOLDS = '0 failed dials to sessions that live; what changed meanwhile is known within 3 s of its return';

interface Outage {
  readonly name: string;
  readonly fault: string;
  readonly redis?: RedisServerOptions;
  readonly relayed?: boolean;
  begin(plane: SplitPlane): unknown;
  end(plane: SplitPlane): unknown;
}

const outages: readonly Outage[] = [
  {
    name: 'redis-kill',
    fault: 'Redis SIGKILL, and back with what it had',
    redis: { args: ['--appendonly', 'yes'] },
    begin: ({ redis }) => redis.kill(),
    end: ({ redis }) => redis.restart(),
  },
  {
    name: 'redis-empty',
    fault: 'Redis SIGKILL, and back empty',
    begin: ({ redis }) => redis.kill(),
    end: ({ redis }) => redis.restart(),
  },
  {
    name: 'redis-stop',
    fault: 'Redis SIGSTOP, then SIGCONT',
    begin: ({ redis }) => redis.pause(),
    end: ({ redis }) => redis.resume(),
  },
  {
    name: 'redis-slow',
    fault: 'Redis 500 ms slower',
    relayed: true,
    begin: (plane) => delay(plane, 250),
    end: (plane) => delay(plane, 0),
  },
  {
    name: 'redis-acl',
    fault: 'Redis refuses (an ACL takes all commands away)',
    // Another user, or the one who took the rights away could not give them back.
    redis: { args: ['--user', 'keeper on nopass ~* &* +@all'] },
    begin: (plane) => asKeeper(plane, 'ACL SETUSER default -@all'),
    end: (plane) => asKeeper(plane, 'ACL SETUSER default +@all'),
  },
  {
    name: 'redis-oom',
    fault: 'Redis out of memory (maxmemory, noeviction)',
    begin: ({ redis }) => redis.command('CONFIG SET maxmemory 1'),
    end: ({ redis }) => redis.command('CONFIG SET maxmemory 0'),
  },
];

/** Both ways together. */
function delay({ redisRelay }: SplitPlane, ms: number): void {
  if (redisRelay) redisRelay.delayMs = ms;
}

async function asKeeper({ redis }: SplitPlane, command: string): Promise<void> {
  const socket = connect(redis.port, '127.0.0.1');
  let answers = '';
  socket.on('data', (chunk) => {
    answers += chunk;
  });
  socket.write(`AUTH keeper any\r\n${command}\r\n`);
  await until(() => answers.split('\r\n').length > 2, { what: `an answer to ${command}` });
  socket.destroy();
  if (answers !== '+OK\r\n+OK\r\n') throw new Error(`${command}: ${answers}`);
}

function rowOf({ name, fault, redis, relayed, begin, end }: Outage): Row<SplitPlane> {
  return {
    name,
    fault,
    holds: HOLDS,
    bounds: {},
    topology: (scope: Scope) =>
      splitPlane(scope, { ...(redis && { redis }), ...(relayed && { relays: ['redis'] as const }) }),
    async inject(context) {
      const { plane, hold, measure } = context;
      await begin(plane);
      await hold(5000, 1000);
      await changeAgent(context);
      const late = await lateGateway(context);
      await hold(15_000, 2000);
      const unready = (await late.program.get('/readyz')).status !== 200;
      const over = clock();
      await end(plane);
      await until(async () => !(await plane.missing()), { deadline: 60_000, what: 'all to know what changed' });
      measure({ name: 'known after', value: clock() - over, unit: 'ms', most: CONVERGED_WITHIN });
      await late.program.waitReady();
      const ready = `a gateway started meanwhile ${unready ? 'was not ready, and' : 'was ready, and still'} is ready after`;
      measure({ name: ready, value: clock() - over, unit: 'ms' });
      await late.kill();
    },
  };
}

/** An agent dies and comes back: its old sessions are gone, and of the new ones nobody hears. */
async function changeAgent({ plane, strike }: Context<SplitPlane>): Promise<void> {
  const agent = plane.agents.at(-1) as Member;
  await strike({ takes: ({ agentId }) => agentId === agent.id }, () => agent.kill());
  await agent.restart();
}

async function lateGateway({ plane, scope }: Context<SplitPlane>): Promise<Member> {
  const url = plane.redisRelay ? `redis://${plane.redisRelay.authority}` : plane.redis.url;
  const flags = { v: 1, 'redis-url': url, plane: 'chaos', ...(await peerFlags(plane.trust)) };
  return (await gatewayOf(scope, plane.trust, plane.gateways.length, flags)).gateway;
}

export const registryRows: readonly Row<SplitPlane>[] = outages.map(rowOf);
