import type { ServerCall } from './call.ts';

/** A method of a service that streams packets both ways. */
export interface GrpcService {
  /** `/Service/Method`. */
  readonly path: string;
  /** @param admit reports that the peer has proven who it is, so that the limits of strangers no longer apply */
  readonly serve: (call: ServerCall, admit: () => void) => void;
}

/** ANP's two methods; its services have no package. */
export const PROXY_METHOD = '/ProxyService/Proxy';
export const CONNECT_METHOD = '/AgentService/Connect';

/** The longest message, in bytes: Go's limit of 4 MiB for the data, plus the packet's head. */
export const MAX_MESSAGE = 4 * 1024 * 1024 + 64 * 1024;
