import type { Ways } from '../harness/index.ts';

export const PROTOCOLS = ['grpc', 'connect', 'mtls'] as const;
/** gRPC and HTTP CONNECT over the unix socket, HTTP CONNECT over mutual TLS. */
export type Protocol = (typeof PROTOCOLS)[number];

/** Where one gateway accepts callers, and which certificate they show. It is sent to the load's process as JSON. */
export interface Door {
  readonly grpc: string;
  readonly connect: string;
  readonly mtls: Mtls;
}

/** Files of certificates, and the name that is sent and expected; default: localhost. */
interface Mtls {
  readonly port: number;
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly serverName?: string;
}

export function doorOf({ grpc, connect, mtls }: Ways): Door {
  const { port, ca, identity } = mtls;
  return { grpc: grpc.uds, connect: connect.uds, mtls: { port, ca, cert: identity.cert, key: identity.key } };
}
