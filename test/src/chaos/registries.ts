import {
  PLANE_USER,
  planeUserArgs,
  type RedisServer,
  type RedisServerOptions,
  startRedis,
  startSentinels,
} from '@isthmus/directory/testing/servers';
import { relayTo, type Scope } from '../harness/index.ts';

/** A running registry, and how to begin and end its outage. */
export interface Outage {
  readonly url: string;
  begin(): unknown;
  end(): unknown;
}

export interface OutageKind {
  readonly name: string;
  readonly fault: string;
  start(scope: Scope): Promise<Outage>;
}

async function redis(scope: Scope, options: RedisServerOptions = {}): Promise<RedisServer> {
  const server = await startRedis(options);
  scope.defer(() => server.stop());
  return server;
}

/** Delay in each direction, in milliseconds: an answer comes 500 ms later. */
const SLOW_MS = 250;

export const outages: readonly OutageKind[] = [
  {
    name: 'redis-kill',
    fault: 'Redis SIGKILL, restarted with its data',
    async start(scope) {
      const server = await redis(scope, { args: ['--appendonly', 'yes'] });
      return { url: server.url, begin: () => server.kill(), end: () => server.restart() };
    },
  },
  {
    name: 'redis-empty',
    fault: 'Redis SIGKILL, restarted empty',
    async start(scope) {
      const server = await redis(scope);
      return { url: server.url, begin: () => server.kill(), end: () => server.restart() };
    },
  },
  {
    name: 'redis-stop',
    fault: 'Redis SIGSTOP, then SIGCONT',
    async start(scope) {
      const server = await redis(scope);
      return { url: server.url, begin: () => server.pause(), end: () => server.resume() };
    },
  },
  {
    name: 'redis-slow',
    fault: 'Redis 500 ms slower',
    async start(scope) {
      const relay = await relayTo(scope, (await redis(scope)).port);
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
      const server = await redis(scope, { args: planeUserArgs });
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
      const server = await redis(scope);
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
