import { type Hub, type HubOptions, hub } from '@isthmus/backend-hub';
import { type Gateway, type GatewayOptions, gateway, PlaneView } from '@isthmus/frontend-gw';
import type { Registry } from '@isthmus/registry';
import type { TlsSettings } from '@isthmus/transport';
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
  readonly plane: PlaneView;
  drain(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The all-in-one server: a gateway and a hub in one process. Dials to the hub's own sessions are function calls; with a plane
 * behind the registry, all others go to the hub that holds the session.
 */
export async function server(options: ServerOptions): Promise<Server> {
  const { registry, observation, peers } = options;
  const directory = new Directory({ ownHub: options.hub.hubId });
  const ownHub = await hub({
    ...options.hub,
    ...{ registry, directory, observation },
    changed: (change) => directory.apply(change),
  });
  const plane = new PlaneView({
    ...{ registry, directory, events: observation.events, own: ownHub },
    ...(peers && { peers }),
    hubs: (hubs) => ownHub.membership(hubs),
  });
  const close = async () => {
    plane.close();
    await ownHub.close();
  };
  let ownGateway: Gateway;
  try {
    ownGateway = await gateway({
      ...options.gateway,
      ...{ directory, observation },
      hub: (hubId) => plane.dial(hubId),
    });
  } catch (error) {
    await close();
    throw error;
  }
  return {
    ...{ gateway: ownGateway, hub: ownHub, directory, plane },
    async drain() {
      const drained = ownGateway.drain();
      // Callers that came last still find the hub's sessions.
      await ownGateway.hide();
      await Promise.all([drained, ownHub.drain()]);
    },
    async close() {
      await ownGateway.close();
      await close();
    },
  };
}
