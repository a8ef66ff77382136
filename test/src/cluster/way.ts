import { CONTROL_PLANES } from './control-planes.ts';
import { ADDRESS } from './settings.ts';

/** A way for the API server to reach the plane. */
export interface Way {
  readonly name: string;
  /** How the API server's metrics name it. */
  readonly protocol: 'grpc' | 'http_connect';
  readonly transport: 'uds' | 'tcp';
  /** What counts its dials, unless the plane is outside the cluster. */
  readonly servers?: Servers;
  /** The addresses of its API servers, if there are several. kubectl finds them behind a balancer. */
  readonly apiServers?: readonly string[];
  /** Whether it changes the cluster for good, and so has one of its own. */
  readonly apart?: true;
}

/** Where metrics are: at addresses of the node, or else in pods. */
type Servers = { readonly port: number } & (
  | { readonly addresses: readonly string[] }
  | { readonly namespace: string; readonly selector: string }
);

const STATIC_POD: Servers = { port: 8092, addresses: [ADDRESS] };
const GATEWAYS: Servers = { namespace: 'isthmus-plane', selector: 'app.kubernetes.io/name=frontend-gw', port: 8092 };
const THREE = CONTROL_PLANES.map(({ address }) => address);

export const WAYS = {
  grpc: { name: 'gRPC, unix socket', protocol: 'grpc', transport: 'uds', servers: STATIC_POD },
  connect: { name: 'HTTP CONNECT, unix socket', protocol: 'http_connect', transport: 'uds', servers: STATIC_POD },
  page: {
    name: "gRPC, kubernetes.io's page",
    protocol: 'grpc',
    transport: 'uds',
    servers: { port: 8134, addresses: [ADDRESS] },
  },
  mtls: { name: 'HTTP CONNECT, TCP with mutual TLS', protocol: 'http_connect', transport: 'tcp', servers: GATEWAYS },
  helm: { name: 'HTTP CONNECT, installed by Helm', protocol: 'http_connect', transport: 'tcp', servers: GATEWAYS },
  ha: {
    name: 'gRPC, three API servers',
    protocol: 'grpc',
    transport: 'uds',
    servers: { port: 8134, addresses: THREE },
    apiServers: THREE,
  },
  'one-address': { name: 'gRPC, a worker behind one address', protocol: 'grpc', transport: 'uds', apart: true },
  hoster: {
    name: 'HTTP CONNECT, from a management cluster',
    protocol: 'http_connect',
    transport: 'tcp',
    servers: GATEWAYS,
    apart: true,
  },
} as const satisfies Record<string, Way>;

export type WayName = keyof typeof WAYS;
