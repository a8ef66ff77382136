import type { ServerCall } from './call.ts';

/** A method of a service that streams packets both ways. */
export interface GrpcService {
  /** `/Service/Method`. */
  readonly path: string;
  /** @param admit tells that the peer has shown who it is: what strangers may do no longer bounds it */
  readonly serve: (call: ServerCall, admit: () => void) => void;
}

/** ANP's two methods; its services have no package. */
export const PROXY_METHOD = '/ProxyService/Proxy';
export const CONNECT_METHOD = '/AgentService/Connect';

/** A message may be this long, in bytes: Go's limit of 4 MiB for the data, and the packet's head. */
export const MAX_MESSAGE = 4 * 1024 * 1024 + 64 * 1024;
