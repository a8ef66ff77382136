import { type Hub, type HubOptions, hub } from '@isthmus/backend-hub';
import { type Gateway, type GatewayOptions, gateway } from '@isthmus/frontend-gw';
import { type Following, follow, type Registry } from '@isthmus/registry';
import { PeerLinks, type TlsSettings } from '@isthmus/transport';
import { Directory, type Observation } from '@isthmus/tunnel';

export interface ServerOptions {
  readonly gateway: Omit<GatewayOptions, 'directory' | 'hub' | 'observation'>;
  readonly hub: Omit<HubOptions, 'changed' | 'registry' | 'directory' | 'observation'>;
  /** How to reach the plane's other hubs; unset for a server that stands alone. */
  readonly peers?: TlsSettings;
  readonly registry: Registry;
  readonly observation: Observation;
}

export interface Server {
  readonly gateway: Gateway;
  readonly hub: Hub;
  readonly directory: Directory;
  readonly following: Following;
  /** Whether a dial has a way to some hub's session: to the own hub's, or over a link to another hub. */
  readonly linked: boolean;
  /** The links to other hubs; unset for a server that stands alone. */
  readonly peers: PeerLinks | undefined;
  drain(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The all-in-one server: a gateway and a hub in one process. Dials to the hub's own sessions are function calls; with a plane
 * behind the registry, all others go to the hub that holds the session.
 */
export async function server(options: ServerOptions): Promise<Server> {
  const { registry, observation, peers: tls } = options;
  const { events } = observation;
  const directory = new Directory();
  const stop = new AbortController();
  const peers = tls && new PeerLinks({ tls, events });
  events.on('peer:open', (hubId) => directory.reachable(hubId));
  const ownHub = await hub({
    ...options.hub,
    ...{ registry, directory, observation },
    changed: (change) => directory.apply(change),
  });
  const own = ownHub.hubId;
  const following = follow(registry, {
    ...{ directory, own, signal: stop.signal },
    linked: (hubId) => peers?.linked(hubId) ?? false,
    hubs(hubs) {
      peers?.sync(hubs.filter(({ hubId }) => hubId !== own));
      ownHub.membership(hubs);
    },
    state: (up, detail) => events.emit('registry', up ? 'up' : 'down', detail),
  });
  events.on('peer:close', (hubId) => following.unlinked(hubId));
  const close = async () => {
    stop.abort();
    peers?.close();
    await ownHub.close();
  };
  let ownGateway: Gateway;
  try {
    const way = (hubId: string) => (hubId === own ? ownHub.dial : peers?.dial(hubId));
    ownGateway = await gateway({ ...options.gateway, directory, hub: way, observation });
  } catch (error) {
    await close();
    throw error;
  }
  return {
    ...{ gateway: ownGateway, hub: ownHub, directory, following, peers },
    get linked() {
      return !peers || peers.ready || ownHub.sessionCount > 0;
    },
    async drain() {
      await Promise.all([ownGateway.drain(), ownHub.drain()]);
    },
    async close() {
      await ownGateway.close();
      await close();
    },
  };
}
