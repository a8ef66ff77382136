import { startRedis } from '@isthmus/directory/testing/servers';
import {
  agentMember,
  type Flags,
  freePort,
  gatewayMember,
  hubMember,
  type LogLine,
  type Member,
  newTrust,
  peerFlags,
  type Relay,
  relayTo,
  type Scope,
  sharedByFile,
  type Trust,
  until,
  type Ways,
} from '../harness/index.ts';

/** A plane whose hubs come and go: a gateway, and an agent with a session to each hub. */
export interface HubPlane {
  readonly trust: Trust;
  readonly redisUrl: string;
  readonly hubs: readonly Member[];
  readonly gateway: Member;
  readonly agent: Member;
  readonly ways: Ways;
  /** Of each hub: what its gateway's link runs through, and its agent's. Empty without `relayed`. */
  readonly relays: readonly { readonly peer: Relay; readonly agent: Relay }[];
}

export interface HubPlaneOptions {
  /** Default 3. */
  readonly hubs?: number;
  readonly hubFlags?: Flags;
  readonly gatewayFlags?: Flags;
  readonly agentFlags?: Flags;
  /** Whether the hubs' links run through relays. */
  readonly relayed?: boolean;
}

interface Back {
  readonly member: Member;
  readonly agentPort: number;
  readonly relays?: HubPlane['relays'][number];
}

export async function hubPlane(scope: Scope, options: HubPlaneOptions = {}): Promise<HubPlane> {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const common = { 'redis-url': redis.url, plane: 'test' };
  const backs = await Promise.all(
    Array.from({ length: options.hubs ?? 3 }, (_, index): Promise<Back> => {
      const id = `hub-${index + 1}`;
      const flags = { ...common, 'server-id': id, ...options.hubFlags };
      return options.relayed ? relayedHub(scope, trust, id, flags) : hubMember(scope, trust, id, { flags });
    }),
  );
  const relays = backs.flatMap((back) => back.relays ?? []);
  const { member: gateway, ways } = await gatewayMember(scope, trust, 'gateway', {
    flags: { ...common, ...(await peerFlags(trust)), ...options.gatewayFlags },
  });
  const agent = await agentMember(scope, trust, 'agent', backs[0]?.agentPort as number, {
    flags: { 'agent-id': 'agent', 'session-count': 'all', ...options.agentFlags },
  });
  const plane = { trust, redisUrl: redis.url, hubs: backs.map(({ member }) => member), relays, gateway, agent, ways };
  await agent.program.waitReady();
  await wholeAgain(plane);
  return plane;
}

async function relayedHub(scope: Scope, trust: Trust, id: string, flags: Flags): Promise<Back> {
  const [peerPort, agentPort] = [await freePort(), await freePort()];
  const [peer, agent] = [await relayTo(scope, peerPort), await relayTo(scope, agentPort)];
  const ports = { 'peer-port': peerPort, 'agent-port': agentPort };
  const advertised = { 'advertise-address': peer.authority, 'advertise-agent-address': agent.authority };
  const { member } = await hubMember(scope, trust, id, { flags: { ...flags, ...ports, ...advertised } });
  return { member, relays: { peer, agent }, agentPort: agent.port };
}

/** Waits until the gateway knows a session of the agent with each hub, and has a link to each. */
export async function wholeAgain({ gateway, hubs }: HubPlane, count = hubs.length): Promise<void> {
  const known = async () => (await gateway.sessions()).length === count;
  await until(known, { what: `${count} sessions at the gateway` });
  const linked = async () => (await gateway.value('isthmus_hub_links')) === count;
  await until(linked, { what: `${count} links of the gateway` });
}

/** Starts a plane that all tests of a file share. Each test gets it whole again and without tunnels. */
export function sharedHubPlane(options: HubPlaneOptions): () => Promise<HubPlane> {
  const shared = sharedByFile((scope) => hubPlane(scope, options));
  return async () => {
    const plane = await shared();
    await wholeAgain(plane);
    const idle = async () => (await plane.gateway.tunnels()).length === 0;
    await until(idle, { what: 'the end of all earlier tunnels' });
    return plane;
  };
}

/** Returns the lines that a member logs from now on, by message. Earlier tests have moved and lost tunnels too. */
export function linesFromNow({ program: { logs } }: Member): (message: string) => LogLine[] {
  const before = logs.length;
  return (message) => logs.slice(before).filter(({ msg }) => msg === message);
}
