import type { ServerCall } from '@isthmus/wire';
import type { ConnectionPeer } from '../listen/connection-peer.ts';

/** A method of a service that streams packets both ways. */
export interface GrpcService {
  /** `/Service/Method`. */
  readonly path: string;
  /** @param admit reports that the peer has proven who it is, so that the limits of strangers no longer apply */
  readonly serve: (call: ServerCall<ConnectionPeer>, admit: () => void) => void;
}

/** ANP's two methods; its services have no package. */
export const PROXY_METHOD = '/ProxyService/Proxy';
export const CONNECT_METHOD = '/AgentService/Connect';
