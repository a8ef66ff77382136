import { EventEmitter } from 'node:events';
import type { PacketType } from '@isthmus/proto';
import { LruMap } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';
import type { Destination } from './destination.ts';
import type { CallerProtocol, DialRequest, ResumableTunnel, TunnelOutcome, TunnelSide } from './dial.ts';
import type { CutBy, DialError, DialTiming } from './errors.ts';
import type { AgentIdentifiers, Principal } from './names.ts';

/** The part of the plane that emits an event. A process may hold several (the all-in-one server is gateway and hub). */
export type Role = 'gateway' | 'hub' | 'agent';

/** Whose a tunnel is: one of a dial, or at a hub a client's connection to its API server, which no agent carries. */
export type TunnelRole = Role | 'api-server';

/** Which way a packet went, as the part that emits the event sees it. */
export type PacketWay = 'received' | 'sent';

/**
 * How a dial failed. `expired`: its deadline passed. `abandoned`: nobody waited any more. `unavailable`: no session could take it.
 * `terminated`: the session that carried it ended. `error`: anything else, such as an error of the destination or a limit.
 */
export type DialFailure = 'expired' | 'abandoned' | 'unavailable' | 'terminated' | 'error';

export interface SessionInfo {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agentId: string;
  readonly hubId: string;
  readonly identifiers: AgentIdentifiers;
  /** `link` is our agent's HTTP/2 link, `packets` is ANP's AgentService.Connect. */
  readonly protocol: 'link' | 'packets';
  readonly remote: string;
  /** The agent's process: see `SessionRecord`. */
  readonly instance?: string;
  /** The agent's, by its credential. Unset where no tenants are configured. */
  readonly principal?: Principal;
  /** From when until when the certificate stands that the agent showed, in milliseconds since the epoch. Unset if it showed none. */
  readonly certificate?: { readonly validFrom: number; readonly validTo: number };
  /** Milliseconds since the epoch. */
  readonly since: number;
}

/** How a dial ended; `error` and `failure` are unset for one that became a tunnel. */
export interface DialOutcome {
  readonly ms: number;
  readonly error?: DialError;
  readonly failure?: DialFailure;
  readonly agentId?: string;
  readonly sessionId?: string;
  readonly hubId?: string;
  readonly agentPrincipal?: string;
  readonly timing?: DialTiming;
}

export interface TunnelInfo {
  readonly role: TunnelRole;
  readonly dial: DialRequest;
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** Bytes so far, caller to destination; live. */
  readonly up: number;
  /** Bytes so far, destination to caller; live. */
  readonly down: number;
  /** Set at a gateway if the tunnel can be resumed. `sessionId` and `hubId` are then live, too. */
  readonly resumable?: ResumableTunnel | undefined;
  /** The side that has ended its direction while the other goes on; live. */
  readonly halfClosed?: TunnelSide | undefined;
  /** Bytes read from one side and not yet accepted by the other; live. */
  readonly queued?: number;
  /** See `Tunnel.idleMs`; live. */
  readonly idleMs?: number;
}

/** A tunnel that was cut at `isthmus hold`, as it tells a gateway. Its tenant and caller are those of hold's credential; the rest are claims. */
export interface HoldCut {
  /** Its caller is hold. */
  readonly dial: Pick<DialRequest, 'id' | 'tenant' | 'destination' | 'caller' | 'traceparent'>;
  readonly agentId: string;
  /** The gateway that carried it last, as hold names it, which need not be the one that is told. */
  readonly gateway: string;
  /** The name of hold. */
  readonly hold: string;
  readonly by: CutBy;
  readonly reason: string;
  /** How long it had been open, in milliseconds. */
  readonly ms: number;
  /** How long ago it ended, in milliseconds. */
  readonly agoMs: number;
  readonly up: number;
  readonly down: number;
}

/** A tunnel whose caller's end is at `isthmus hold`, as that says. */
export interface HeldTunnel extends Pick<ResumableTunnel, 'agentId' | 'attached' | 'moves' | 'kept'> {
  readonly dialId: string;
  readonly destination: Destination;
  /** Milliseconds since the epoch, by the clock of hold. */
  readonly since: number;
  readonly up: number;
  readonly down: number;
}

/** A process of `isthmus hold` with a link to this gateway. Tenant and caller are those of its credential; the rest are claims. */
export interface Hold {
  /** Empty if it has not said yet. */
  readonly name: string;
  readonly version: string;
  readonly tenant: string;
  readonly caller: string;
  readonly remote: string;
  /** Since when it has the link, in milliseconds since the epoch. */
  readonly since: number;
  readonly tunnels: readonly HeldTunnel[];
}

/** Where a certificate is used: on a port, or to authenticate to servers (`uplink`: an agent's; `peers`: both). */
export type CertificatePlace = 'callers' | 'agents' | 'peers' | 'admin' | 'uplink' | 'redis';

/** What a certificate says about itself. */
interface CertificateFacts {
  /** Subject and serial number. */
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly validFrom: number;
}

/** Who uses an admin port. */
export interface Operator {
  /** The certificate's subject; `host:port` without one, on loopback. */
  readonly identity: string;
  /** `host:port` */
  readonly remote: string;
  /** Set for an operator of one tenant alone. */
  readonly tenant?: string;
}

/** What an operator did or asked for on an admin port, beyond reading. Also what was refused, reading included. */
export interface Operation {
  readonly operator: Operator;
  /** The call of the admin RPC, such as `Kick`, or the path of a page. */
  readonly call: string;
  /** Whose agents, sessions or tunnels it acts on. Unset: the whole process. */
  readonly tenant?: string;
  /** What it acts on, in words: `agent edge-1`. */
  readonly target?: string;
  readonly outcome: 'done' | 'refused' | 'failed';
  /** The reason that the operator gave; why it was refused or failed. */
  readonly text?: string;
}

/**
 * Everything worth counting, logging or tracing, as plain events. Metrics, logs and audit subscribe; the core does not know about
 * them.
 */
export interface PlaneEventMap {
  'dial:start': [role: Role, dial: DialRequest];
  'dial:end': [role: Role, dial: DialRequest, outcome: DialOutcome];
  /** At the gateway: a dial starts (`park`) or stops (`unpark`) waiting for a session. */
  'dial:park': [dial: DialRequest];
  'dial:unpark': [dial: DialRequest];
  /** A dial succeeded, and the side that dialled had gone before it got the answer. Its `dial:end` was emitted before. */
  'dial:undelivered': [dial: DialRequest];
  /** At the hub: an agent answered a dial that nobody made. */
  'dial:unasked': [];
  'tunnel:open': [tunnel: TunnelInfo];
  /** At the gateway: the destination's first byte has passed, so many milliseconds after the tunnel opened. */
  'tunnel:first-byte': [tunnel: TunnelInfo, ms: number];
  'tunnel:close': [tunnel: TunnelInfo, outcome: TunnelOutcome, ms: number];
  /** At the hub: a client's connection to its API server was refused, or reached no address, so many milliseconds after its first bytes. */
  'api-server:failure': [dial: DialRequest, error: DialError, ms: number];
  /** At a gateway: `isthmus hold` says that a tunnel of its callers was cut, perhaps while no gateway was there to see it. */
  'hold:cut': [cut: HoldCut];
  /** A process that drains ends an idle tunnel. Its `tunnel:close` follows. */
  'tunnel:idle': [tunnel: TunnelInfo];
  /** At the gateway: a tunnel has lost what carried it, and waits for another way to its agent. */
  'tunnel:detach': [tunnel: ResumableTunnel, reason: Error];
  /** At the gateway: it goes on through another stream. `paused`: for so many milliseconds, or 0 if the old stream carried until then. */
  'tunnel:attach': [tunnel: ResumableTunnel, paused: number];
  /** At the gateway: a tunnel that was detached ended without another way to its agent. */
  'tunnel:give-up': [tunnel: ResumableTunnel];
  /** A tunnel was ended because its reader read nothing and held up others: those of its packet stream, or of its tenant. */
  'tunnel:stalled': [role: Role];
  /** At the hub: an agent's session. */
  'session:open': [session: SessionInfo];
  'session:drain': [session: SessionInfo];
  /** It is silent, and dials avoid it; or it was heard again. */
  'session:suspect': [session: SessionInfo, is: boolean];
  'session:close': [session: SessionInfo, reason: string];
  /** At the agent: its own link to a server. */
  'server:open': [
    server: { readonly address: string; readonly serverId: string; readonly protocol: 'link' | 'packets' },
  ];
  'server:close': [server: { readonly address: string; readonly serverId: string }, reason: string];
  /** At the agent: a server could not be reached (`connecting`), or the link to it broke (`connected`). */
  'server:failure': [address: string, at: 'connecting' | 'connected', error: Error];
  /** At the agent: how many servers it knows. */
  'server:known': [count: number];
  /** At the agent: a destination could not be reached. */
  'endpoint:failure': [timedOut: boolean];
  /** At the gateway: a caller's connection. */
  'caller:open': [via: CallerProtocol];
  'caller:close': [via: CallerProtocol];
  /** At the gateway: a write to a caller was accepted, after `ms` milliseconds of waiting. */
  'caller:write': [ms: number];
  /** A packet stream is not read because its consumer is full; then it is read again. */
  'receive:full': [role: Role];
  'receive:free': [role: Role];
  /** At the gateway: its link to a hub. */
  'peer:open': [hubId: string, address: string];
  'peer:close': [hubId: string, address: string, reason: string];
  /** It is silent, and dials avoid it; or it was heard again. */
  'peer:suspect': [hubId: string, address: string, is: boolean];
  /** At the gateway: a link to a hub could not be opened. */
  'peer:failure': [hubId: string, address: string, error: Error];
  packet: [role: Role, way: PacketWay, type: PacketType];
  /** A packet stream broke. `code` is a gRPC status name such as `Unavailable`. */
  'packet:error': [role: Role, code: string];
  /** Something that a peer sent was rejected. The rest of the plane is not affected. */
  refused: [where: string, remote: string, error: Error];
  /** An operator's `isthmus check` probes this process's ports from `remote`. Rejecting it is expected. */
  probe: [remote: string];
  /** A bug: our own code threw where it should not. What it served, such as a connection, was ended. The process continues. */
  fault: [where: string, remote: string, error: Error];
  /** A certificate, the first or a renewed one, is now in use. `validUntil` is in milliseconds since the epoch. */
  certificate: [where: CertificatePlace, validUntil: number, about?: CertificateFacts];
  /**
   * The current content of credential files (a certificate's, a CA bundle, a token, a password) cannot be used, or not all of it. What was in
   * force stays. Undefined: it can be used again.
   */
  'certificate:failure': [where: CertificatePlace, files: string, error: Error | undefined];
  /** Tenants' files were put in force. Lists the names of tenants that are new, changed or gone. */
  tenants: [
    change: { readonly changed: readonly string[]; readonly gone: readonly string[]; readonly inForce: number },
  ];
  /** A tenant's file cannot be used: `acme.yaml:3:5: limits.tunnels: ...`. Its earlier content keeps the tenant `kept` in force. */
  'tenants:failure': [problem: string, kept: string | undefined];
  /** The registry's health changed. */
  registry: [state: 'up' | 'down', detail: string];
  /** An operator acted on the admin port, or was refused there. */
  operation: [operation: Operation];
  /** Audit records were lost on their way to a file or standard output (`log`), or over OTLP (`otlp`). */
  'audit:dropped': [records: number];
}

export type PlaneEvents = EventEmitter<PlaneEventMap>;

/** Returns an emitter whose `emit` never throws. A subscriber that throws causes a `fault` event; the plane and the others go on. */
export function planeEvents(): PlaneEvents {
  const events: EventEmitter = new IsolatingEmitter();
  return events as PlaneEvents;
}

type Subscriber = (...args: unknown[]) => unknown;

class IsolatingEmitter extends EventEmitter {
  /** By event, those to call: a list that is made when one comes or goes, because events are many and changes are few. */
  readonly #subscribers = new Map<string | symbol, readonly Subscriber[]>();

  override addListener(name: string | symbol, subscriber: Subscriber): this {
    return this.#changed(name, super.addListener(name, subscriber));
  }

  override removeListener(name: string | symbol, subscriber: Subscriber): this {
    return this.#changed(name, super.removeListener(name, subscriber));
  }

  override on(name: string | symbol, subscriber: Subscriber): this {
    return this.addListener(name, subscriber);
  }

  override off(name: string | symbol, subscriber: Subscriber): this {
    return this.removeListener(name, subscriber);
  }

  override removeAllListeners(name: string | symbol): this {
    return this.#changed(name, super.removeAllListeners(name));
  }

  #changed(name: string | symbol, self: this): this {
    this.#subscribers.set(name, this.rawListeners(name) as Subscriber[]);
    return self;
  }

  override emit(name: string | symbol, ...args: unknown[]): boolean {
    const subscribers = this.#subscribers.get(name) ?? [];
    for (const subscriber of subscribers) {
      try {
        const done = subscriber(...args);
        if (done instanceof Promise) done.catch((error) => this.#failed(name, error));
      } catch (error) {
        this.#failed(name, error as Error);
      }
    }
    return subscribers.length > 0;
  }

  /** A subscriber threw, or rejected. */
  #failed(name: string | symbol, error: Error): void {
    // For one of `fault` itself, only a process warning is left.
    if (name === 'fault') process.emitWarning(error);
    else this.emit('fault', `subscriber of ${String(name)}`, '', error);
  }
}

/** Upstream's words: the `reason` label of its `dial_failure_count`. Logs, spans and the admin RPC use them too, to be compared with it. */
const REASONS = {
  expired: 'backend_dial_timeout',
  abandoned: 'frontend_close',
  unavailable: 'no_agent',
  terminated: 'backend_close',
  error: 'error_response',
} as const satisfies Record<DialFailure, string>;

export function upstreamReason(failure: DialFailure): (typeof REASONS)[DialFailure] {
  return REASONS[failure];
}

type Heard<Name extends keyof PlaneEventMap> = (...args: PlaneEventMap[Name]) => void;

/**
 * Returns listeners that pass on refusals, except those of `isthmus check`. The check announces its address before its handshake. It
 * does not authenticate at the port it probes, so the port refuses it, and that should alert nobody.
 */
export function unlessProbed(heard: Heard<'refused'>): {
  readonly probe: Heard<'probe'>;
  readonly refused: Heard<'refused'>;
} {
  const expected = new LruMap<string, number>(TUNNEL.probes);
  return {
    probe: (remote) => void expected.set(remote, performance.now() + TUNNEL.probeMs),
    refused(where, remote, error) {
      if ((expected.get(remote) ?? 0) < performance.now()) heard(where, remote, error);
    },
  };
}
