import { startRedis } from '@isthmus/directory/testing/servers';
import type { Scope } from '../../harness/index.ts';
import { namespace, networksMissing, type Wire } from '../network.ts';
import type { Context, Row } from '../row.ts';
import { type SplitPlane, splitPlane } from '../split-plane.ts';

type Link = 'peer' | 'agent';
const NAMES: Readonly<Record<Link, string>> = { peer: 'hub–gateway', agent: 'hub–agent' };

interface WiredPlane extends SplitPlane {
  /** A wire of the first hub. */
  wire(link: Link): Wire;
}

/** The first hub has its own network, with one wire to gateways, one to agents and one to Redis. */
async function topology(scope: Scope): Promise<WiredPlane> {
  const { command, wire } = await namespace(scope, ['peer', 'agent', 'registry']);
  const { inside: host, outside } = wire('registry');
  // Without a password, Redis refuses other machines unless it is told not to.
  const redis = await startRedis({ args: ['--bind', '127.0.0.1', outside, '--protected-mode', 'no'] });
  scope.defer(() => redis.stop());
  const place = { command, host, registryUrl: `redis://${outside}:${redis.port}` };
  const firstHub = { ...place, peer: wire('peer').inside, agent: wire('agent').inside };
  return { ...(await splitPlane(scope, { registryUrl: redis.url, firstHub })), wire };
}

function halfOpen(link: Link): Row<WiredPlane> {
  return {
    name: `${link}-link-half-open`,
    fault: `${NAMES[link]} link half open (packets dropped)`,
    holds: '0 failed dials; dials within 1 s; 0 cut tunnels; pauses of at most 3.5 s',
    bounds: { dialMs: 1000, pauseMs: 3500 },
    skip: networksMissing,
    topology,
    async inject({ plane, strike, hold }: Context<WiredPlane>) {
      const [hub] = plane.hubs;
      await strike({ touches: ({ hubId }) => hubId === hub?.id }, () => plane.wire(link).cut());
      await hold(20_000, 5000);
      await plane.wire(link).mend();
    },
  };
}

export const halfOpenRows: readonly Row<WiredPlane>[] = [halfOpen('peer'), halfOpen('agent')];
