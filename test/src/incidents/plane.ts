import { type RedisServer, startRedis } from '@isthmus/directory/testing/servers';
import {
  agentMember,
  type Flags,
  gatewayMember,
  hubMember,
  type Member,
  newTrust,
  peerFlags,
  type Scope,
  type Trust,
  type Ways,
} from '../harness/index.ts';
import { dial, type Protocol } from '../plane/dials.ts';

const PLANE = 'production';

/** So long that no certificate seems to be the trouble: 90 days. */
export const VALID_MS = 90 * 86_400_000;

/** How often each caller dials, in milliseconds. */
const EVERY_MS = 300;

export interface PlaneOptions {
  readonly hubs?: number;
  readonly agents: number;
  /** Of gateways and hubs alike. */
  readonly flags?: Flags;
  readonly gatewayFlags?: Flags;
  readonly hubFlags?: Flags;
  readonly agentFlags?: (index: number, trust: Trust, hubs: Plane['hubs']) => Flags | Promise<Flags>;
}

/** Two gateways, hubs and agents with names of their own. */
export interface Plane {
  readonly trust: Trust;
  readonly redis: RedisServer;
  readonly gateways: readonly { readonly member: Member; readonly ways: Ways }[];
  readonly hubs: readonly { readonly member: Member; readonly agentPort: number }[];
  readonly agents: readonly Member[];
  /** All of them. */
  readonly members: readonly Member[];
}

export async function startPlane(scope: Scope, options: PlaneOptions): Promise<Plane> {
  const { hubs: hubCount = 2, agents: agentCount, flags, gatewayFlags, hubFlags, agentFlags } = options;
  const trust = await newTrust(scope, VALID_MS);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const common = { 'redis-url': redis.url, plane: PLANE, ...flags };
  const hubs = await times(hubCount, (index) =>
    hubMember(scope, trust, `hub-${index}`, { flags: { ...common, 'server-id': `hub-${index}`, ...hubFlags } }),
  );
  const gateways = await times(2, async (index) => {
    const own = { ...common, ...(await peerFlags(trust, ['gateway'])), 'server-id': `gateway-${index}` };
    return gatewayMember(scope, trust, `gateway-${index}`, { flags: { ...own, ...gatewayFlags } });
  });
  const agents = await times(agentCount, async (index) =>
    startAgent(scope, { trust, hubs }, index, await agentFlags?.(index, trust, hubs)),
  );
  const members = [...gateways.map(({ member }) => member), ...hubs.map(({ member }) => member), ...agents];
  await Promise.all(members.map(({ program }) => program.waitReady()));
  return { trust, redis, gateways, hubs, agents, members };
}

export function startAgent(
  scope: Scope,
  { trust, hubs }: Pick<Plane, 'trust' | 'hubs'>,
  index: number,
  flags: Flags = {},
): Promise<Member> {
  const id = `agent-${index}`;
  const port = hubs[index % hubs.length]?.agentPort ?? 0;
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

function times<T>(count: number, make: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => make(index)));
}
