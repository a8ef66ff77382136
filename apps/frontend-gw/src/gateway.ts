import type { Gateway } from '@isthmus/plane';
import { type TlsSettings, within } from '@isthmus/runtime';
import { type AdmissionState, socketsCheck } from '@isthmus/service';
import {
  type Accept,
  connectEdge,
  grpcServer,
  type ListenAddress,
  type Listener,
  listen,
  proxyService,
} from '@isthmus/transport';
import {
  Admission,
  type CallerProtocol,
  type Dial,
  type Directory,
  explain,
  type Observation,
  observed,
  PlaneEnded,
  refuseWhenScarce,
  routed,
  type Strategy,
  Suspects,
  TunnelTable,
} from '@isthmus/tunnel';

/** Initial window of a caller's tunnel, in bytes: what a tunnel holds if its destination does not read. It grows if the destination reads. */
const CALLER_WINDOW = 64 * 1024;

/** How long callers may take to close when the gateway ends, in milliseconds: upstream drops them within 0.4 s. */
const CALLER_GRACE = 300;

/** How long the last accepted callers may take in a drain for their handshake, dial and answer, in milliseconds. */
const ANSWER_GRACE = 1000;

/**
 * Silent callers are pinged after at most this time, in milliseconds, even if the flag allows longer. Node does not always notice
 * that a TLS connection was reset while it wrote to it, and the caller's tunnel would stay open for the flag's hour.
 */
const LONGEST_KEEPALIVE = 60_000;

/** One address where callers connect. */
export interface CallerPort {
  readonly address: ListenAddress;
  /** Unset on a unix socket, whose permissions decide. */
  readonly tls?: TlsSettings;
}

export interface GatewayOptions {
  readonly callers: readonly CallerPort[];
  /** Unset: both, told apart by the first bytes. */
  readonly mode?: CallerProtocol;
  readonly tenant: string;
  readonly strategies: readonly Strategy[];
  readonly zone: string;
  /** How long a dial may take, in milliseconds. */
  readonly dialTimeout: number;
  /** How long a dial waits while its tenant has no session, or none whose hub can be reached, in milliseconds. */
  readonly parkTimeout: number;
  /** Keepalive of callers' gRPC connections, in milliseconds. */
  readonly keepaliveTime: number;
  readonly directory: Directory;
  /** Returns the dial to a hub, or undefined while there is none. */
  readonly hub: (hubId: string) => Dial | undefined;
  readonly observation: Observation;
}

/** Runs a gateway: accepts callers, chooses a session for each dial, splices bytes. */
export async function gateway(options: GatewayOptions): Promise<Gateway> {
  const { callers, mode, observation, tenant, dialTimeout: timeout } = options;
  const { events } = observation;
  const suspects = new Suspects();
  const admission = new Admission(refuseWhenScarce(routed(options, suspects)));
  const dial = observed('gateway', admission.dial, observation);
  const edge = { dial, tenant, events, timeout };
  const { zone, parkTimeout } = options;
  const explained = { ...options, suspects };
  const connect = connectEdge(edge);
  const grpc = () =>
    grpcServer({
      services: [proxyService(edge)],
      name: 'callers',
      events,
      keepaliveMs: Math.min(options.keepaliveTime, LONGEST_KEEPALIVE),
      streamWindow: CALLER_WINDOW,
    });
  // Local callers notice that it leaves when their unix socket disappears, remote ones by a GOAWAY.
  const [beside, afar] = [grpc(), grpc()];
  const listeners: Listener[] = [];
  const tunnels = new TunnelTable(events);
  let state: AdmissionState = 'open';
  const hideAll = async () => {
    const local = listeners.filter((listener) => listener.local);
    await Promise.all(local.map((listener) => listener.stop()));
    await within(Promise.all(local.map(({ idle }) => idle)), ANSWER_GRACE);
  };
  let hidden: Promise<void> | undefined;
  const hide = () => {
    hidden ??= hideAll();
    return hidden;
  };
  const close = async () => {
    // New callers are rejected, and earlier ones get an answer: no caller is reset in the middle of its request.
    await Promise.all(listeners.map((listener) => listener.stop()));
    if (admission.closed) await within(Promise.all(listeners.map(({ idle }) => idle)), ANSWER_GRACE);
    // The audit must show that the plane closed these tunnels, not the callers.
    const endTunnels = () => tunnels.abortAll('gateway', new PlaneEnded('the gateway stops'));
    const timer = setTimeout(endTunnels, CALLER_GRACE);
    await Promise.all([beside.close(CALLER_GRACE), afar.close(CALLER_GRACE)]);
    clearTimeout(timer);
    endTunnels();
    // The log still gets a line for each.
    await within(tunnels.idle(), CALLER_GRACE);
    await Promise.all(listeners.map((listener) => listener.close()));
  };
  try {
    for (const port of callers) {
      const http1 = mode !== 'grpc' && { http1: connect.accept };
      const grpc = 'path' in port.address ? beside : afar;
      const acceptGrpc: Accept = (socket, first) => grpc.accept(socket, first);
      const http2 = mode !== 'http-connect' && { http2: acceptGrpc };
      listeners.push(await listen({ ...port, ...http1, ...http2, name: 'callers', events }));
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    addresses: listeners.map(({ address }) => address),
    routing: {
      tenant,
      zone,
      dialTimeout: timeout,
      parkTimeout,
      dial,
      events,
      explain: (of, destination) => explain(explained, of, destination),
    },
    get admission() {
      return state;
    },
    get sockets() {
      return socketsCheck(listeners);
    },
    leave() {
      state = 'leaving';
    },
    hide,
    async drain() {
      state = 'draining';
      afar.drain();
      await hide();
      beside.drain();
      await admission.close();
    },
    close,
  };
}
