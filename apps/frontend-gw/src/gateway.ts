import type { RoutingPart } from '@isthmus/admin';
import { type AdmissionState, type Check, socketsCheck } from '@isthmus/service';
import {
  connectEdge,
  grpcServer,
  type ListenAddress,
  type Listener,
  listen,
  proxyService,
  type Take,
  type TlsSettings,
} from '@isthmus/transport';
import {
  Admission,
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

/** What a caller may send ahead on its tunnel at first, in bytes: what one holds whose destination does not read. It grows for one that does. */
const CALLER_WINDOW = 64 * 1024;

/** How long callers may take to close when the gateway ends, in milliseconds: upstream drops them within 0.4 s. */
const CALLER_GRACE = 300;

/** In a drain, how long callers that were accepted last may take for their handshake, and for their dial or its answer, in milliseconds. */
const ANSWER_GRACE = 1000;

/**
 * A caller that was silent for so long is pinged, in milliseconds, however long the flag allows. Node does not always notice
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
  readonly mode?: 'grpc' | 'http-connect';
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
  /** The way to a hub, or undefined while there is none. */
  readonly hub: (hubId: string) => Dial | undefined;
  readonly observation: Observation;
}

export interface Gateway {
  readonly addresses: readonly string[];
  readonly admission: AdmissionState;
  /** How an operator dials and asks how dials are routed. */
  readonly routing: RoutingPart;
  /** Whether callers on this machine find it. */
  readonly sockets: Check;
  /** Says of itself that callers should go elsewhere, and goes on serving them. */
  leave(): void;
  /**
   * Takes its unix sockets away: callers there wait for the next server, and would not if they met a GOAWAY. Resolves when
   * those that came before have dialled, as far as they do that at once.
   */
  hide(): Promise<void>;
  /** Hides, sends callers elsewhere and refuses new dials; resolves when those that are pending have their answer. */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
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
      ...{ services: [proxyService(edge)], name: 'callers', events },
      ...{ keepaliveMs: Math.min(options.keepaliveTime, LONGEST_KEEPALIVE), streamWindow: CALLER_WINDOW },
    });
  // Those beside it learn that it goes from their socket, which is no more.
  const [beside, afar] = [grpc(), grpc()];
  const listeners: Listener[] = [];
  const tunnels = new TunnelTable(events);
  let state: AdmissionState = 'open';
  const hideAll = async () => {
    const local = listeners.filter((listener) => listener.local);
    await Promise.all(local.map((listener) => listener.stop()));
    await atMost(ANSWER_GRACE, Promise.all(local.map(({ idle }) => idle)));
  };
  let hidden: Promise<void> | undefined;
  const hide = () => {
    hidden ??= hideAll();
    return hidden;
  };
  const close = async () => {
    // Whoever connects from now on is refused, and whoever was before gets an answer: no caller is reset amid its request.
    await Promise.all(listeners.map((listener) => listener.stop()));
    if (admission.closed) await atMost(ANSWER_GRACE, Promise.all(listeners.map(({ idle }) => idle)));
    // Its own deed, which must not look like the callers'.
    const endTunnels = () => tunnels.abortAll('gateway', new PlaneEnded('the gateway stops'));
    const timer = setTimeout(endTunnels, CALLER_GRACE);
    await Promise.all([beside.close(CALLER_GRACE), afar.close(CALLER_GRACE)]);
    clearTimeout(timer);
    endTunnels();
    // So that each is still told in the log.
    await atMost(CALLER_GRACE, tunnels.idle());
    await Promise.all(listeners.map((listener) => listener.close()));
  };
  try {
    for (const port of callers) {
      const http1 = mode !== 'grpc' && { http1: connect.accept };
      const grpc = 'path' in port.address ? beside : afar;
      const takeGrpc: Take = (socket, first) => grpc.accept(socket, first);
      const http2 = mode !== 'http-connect' && { http2: takeGrpc };
      listeners.push(await listen({ ...port, ...http1, ...http2, name: 'callers', events }));
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    addresses: listeners.map(({ address }) => address),
    routing: {
      ...{ tenant, zone, dialTimeout: timeout, parkTimeout, dial, events },
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

async function atMost(ms: number, waited: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([waited, late]);
  clearTimeout(timer);
}
