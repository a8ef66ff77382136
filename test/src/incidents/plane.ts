import type { RedisServer } from '@isthmus/directory/testing/servers';
import { agentMember, type Flags, type Member, newTrust, type Scope, type Ways } from '../harness/index.ts';
import { dial, type Protocol } from '../plane/dials.ts';
import * as rig from '../rig/plane.ts';

/** So long that no certificate seems to be the trouble: 90 days. */
export const VALID_MS = 90 * 86_400_000;

/** How often each caller dials, in milliseconds. */
const EVERY_MS = 300;

/** Members log as they do by default. */
const LOGS: Flags = { v: undefined };

/** Two gateways, hubs and agents with names of their own. */
export interface Plane extends rig.Plane {
  readonly redis: RedisServer;
  /** All of them. */
  readonly members: readonly Member[];
}

export async function startPlane(scope: Scope, { hubs = 2, ...options }: rig.PlaneOptions): Promise<Plane> {
  const { planeFlags, agentFlags } = options;
  const redis = await rig.redisFor(scope);
  const plane = await rig.startPlane(scope, {
    ...options,
    hubs,
    trust: await newTrust(scope, VALID_MS),
    registryUrl: redis.url,
    planeFlags: { plane: 'production', ...LOGS, ...planeFlags },
    agentFlags: async (index, ports) => ({ ...LOGS, ...(await agentFlags?.(index, ports)) }),
  });
  const members = [...plane.gateways, ...plane.hubs, ...plane.agents];
  await Promise.all(members.map(({ program }) => program.waitReady()));
  return { ...plane, redis, members };
}

/** Starts one more agent, or one again. */
export function startAgent(
  scope: Scope,
  { trust, agentPorts }: Plane,
  index: number,
  flags: Flags = {},
): Promise<Member> {
  const id = `agent-${index}`;
  const port = agentPorts[index % agentPorts.length] ?? 0;
  return agentMember(scope, trust, id, port, { flags: { 'agent-id': id, ...flags } });
}

/** Dials a destination again and again until the scope ends, as an API server's health checks do. */
export function keepDialling(scope: Scope, ways: Ways, destination: string, by: Protocol = 'connect'): void {
  void (async () => {
    while (!scope.signal.aborted) {
      await dial(scope, ways, by, destination).then(
        (tunnel) => tunnel.destroy(),
        () => {},
      );
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  })();
}
