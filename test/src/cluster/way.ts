/** A way for the API server to reach the plane. */
export interface Way {
  readonly name: string;
  /** How the API server's metrics name it. */
  readonly protocol: 'grpc' | 'http_connect';
  readonly transport: 'uds' | 'tcp';
  /** The pods whose metrics count its dials, and their health port. */
  readonly servers: { readonly namespace: string; readonly selector: string; readonly port: number };
}

const STATIC_POD = { namespace: 'kube-system', selector: 'app.kubernetes.io/name=proxy-server', port: 8092 };

export const WAYS = {
  grpc: { name: 'gRPC, unix socket', protocol: 'grpc', transport: 'uds', servers: STATIC_POD },
  connect: { name: 'HTTP CONNECT, unix socket', protocol: 'http_connect', transport: 'uds', servers: STATIC_POD },
  mtls: {
    name: 'HTTP CONNECT, TCP with mutual TLS',
    protocol: 'http_connect',
    transport: 'tcp',
    servers: { namespace: 'isthmus-plane', selector: 'app.kubernetes.io/name=frontend-gw', port: 8092 },
  },
} as const satisfies Record<string, Way>;
