import { randomBytes } from 'node:crypto';
import type { Packet } from '@isthmus/proto';
import {
  type Attach,
  AttachRefused,
  type Dial,
  DialError,
  type DialErrorCode,
  type DialRequest,
  DuplexEnd,
  type Established,
  formatDestination,
  type PlaneEvents,
  SessionLost,
  TUNNEL,
} from '@isthmus/tunnel';
import type { PacketChannel, StatusError } from '@isthmus/wire';
import { abandoned, Drain, type NextHopConnection, PendingDial } from '../dials.ts';
import { type DialPacket, PacketMux, remember } from './mux.ts';
import type { PacketStream } from './stream.ts';

/**
 * The words of Go's net package in which a Go agent says why a dial failed, and what they mean. The first that the text contains decides. A
 * resolver's timeout has `lookup` before `i/o timeout`, looked for behind the first `lookup` alone: behind each would cost the text's square.
 */
const GO_ERRORS: readonly (readonly [words: RegExp, code: DialErrorCode])[] = [
  [/connection refused|connection reset by peer/, 'connection_refused'],
  [/^(?:(?!lookup ).)*lookup .*?(?:i\/o timeout|deadline exceeded)/s, 'dns_timeout'],
  [/no such host|server misbehaving|lookup /, 'dns_error'],
  [/i\/o timeout|connection timed out|deadline exceeded/, 'connection_timeout'],
  [/no route to host|network is unreachable|host is down|network is down/, 'destination_ip_unroutable'],
  [/too many open files|cannot assign requested address|no buffer space/, 'connection_limit_reached'],
  [/missing address|missing port|too many colons|unknown network|unknown port|invalid port/, 'http_request_error'],
];

/** What says nothing about the destination: an agent without a free socket has sent nothing to it, and one without DNS does not know it. */
const RETRYABLE: readonly DialErrorCode[] = ['connection_limit_reached', 'dns_timeout'];

/** Returns the meaning of a Go agent's error text, which may be megabytes long: no more is read and told than of other errors. */
function refusal(error: string): DialError {
  const text = error.slice(0, TUNNEL.errorTextChars);
  const code = GO_ERRORS.find(([words]) => words.test(text))?.[1] ?? 'proxy_internal_error';
  return new DialError(code, text, { retryable: RETRYABLE.includes(code) });
}

type DialResponsePacket = Extract<Packet, { type: 'DIAL_RSP' }>;

interface PacketClientOptions {
  readonly tenant?: string;
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
  readonly agentPrincipal?: string;
  readonly events: PlaneEvents;
  /** Called when the agent asks to send dials elsewhere if there are other sessions. */
  readonly drain?: () => void;
}

/** Dials through a Go agent. */
export class PacketClient implements NextHopConnection {
  readonly dial: Dial = async (request) => this.#dial(request);
  readonly attach: Attach = () => Promise.reject(cannotResume());
  readonly closed: Promise<Error>;
  readonly #options: PacketClientOptions;
  readonly #mux: PacketMux;
  /** By the dial's random number. */
  readonly #pending = new Map<bigint, PendingDial>();
  /** Dials that ended without an answer, oldest first. */
  readonly #givenUp = new Set<bigint>();
  readonly #drain: Drain;

  constructor(channel: PacketChannel, options: PacketClientOptions) {
    this.#options = options;
    const peer = `agent ${options.agentId}`;
    this.#drain = new Drain({ peer, open: () => this.open, end: () => this.#mux.end() });
    this.closed = this.#drain.closed;
    const { events, tenant } = options;
    this.#mux = new PacketMux(channel, {
      role: 'hub',
      events,
      tenant,
      receive: (packet) => this.#receive(packet),
      closed: (streams, error) => this.#end(streams, error),
    });
  }

  get open(): number {
    return this.#pending.size + this.#mux.size;
  }

  /** ANP's servers have no message for it, and their agents look for servers all the time. */
  leave(): void {}

  close(): void {
    this.#drain.refuseDials(new Error('session is closing'));
    this.#drain.endIfIdle();
  }

  destroy(reason: Error): void {
    this.#drain.refuseDials(reason);
    this.#mux.destroy(reason);
  }

  /** The stream's status says why. */
  destroyAndTell(reason: Error): void {
    this.destroy(reason);
  }

  #dial(request: DialRequest): Promise<Established> {
    this.#drain.check();
    if (request.signal.aborted) throw abandoned();
    const random = this.#random();
    const pending = new PendingDial(request, {
      guarded: this.#mux.guarded,
      cancel: () => {
        this.#mux.post({ type: 'DIAL_CLS', random });
        remember(this.#givenUp, random);
      },
      settled: (error) => {
        this.#pending.delete(random);
        if (error) this.#drain.endIfIdle();
      },
    });
    this.#pending.set(random, pending);
    this.#mux.post({ type: 'DIAL_REQ', protocol: 'tcp', address: formatDestination(request.destination), random });
    // ANP's protocol has no acknowledgement, so the sent dial counts as one.
    request.acknowledged?.();
    return pending.answer;
  }

  #established(connectID: bigint): Established {
    const { agentId, sessionId, hubId, agentPrincipal } = this.#options;
    const end = new DuplexEnd(this.#mux.open(connectID), false);
    end.whenLeft(this.#mux.guarded(() => this.#drain.endIfIdle()));
    return { end, agentId, sessionId, hubId, timing: {}, ...(agentPrincipal !== undefined && { agentPrincipal }) };
  }

  #receive(packet: DialPacket): void {
    if (packet.type === 'DIAL_RSP') this.#answer(packet);
    else if (packet.type === 'DRAIN') this.#options.drain?.();
    else if (packet.type === 'DIAL_CLS') {
      const text = `agent ${this.#options.agentId} closed the dial`;
      this.#pending.get(packet.random)?.fail(new DialError('proxy_internal_error', text, { retryable: true }));
    }
  }

  #answer({ random, connectID, error }: DialResponsePacket): void {
    const pending = this.#pending.get(random);
    if (!pending) {
      // An abandoned dial was already counted. An answer to a dial that never was has not been.
      if (!this.#givenUp.delete(random)) this.#options.events.emit('dial:unasked');
      // Nobody waits for it any longer. Without a close, the agent would keep its socket for good.
      if (connectID !== 0n && !this.#mux.has(connectID)) this.#mux.disown(connectID);
    } else if (error !== '') {
      pending.fail(refusal(error));
    } else if (connectID === 0n || this.#mux.has(connectID)) {
      pending.fail(
        new DialError('proxy_internal_error', `agent answered with connection id ${connectID}, which is not a new one`),
      );
    } else {
      pending.succeed(this.#established(connectID));
    }
  }

  #end(streams: Iterable<PacketStream>, error?: StatusError): void {
    const { agentId } = this.#options;
    const cause = error ?? this.#drain.reason ?? new Error('agent closed its stream');
    // An agent that closes its stream in order leaves. Whatever else ends it may be on the way.
    const lost = new SessionLost(`agent ${agentId}: ${cause.message}`, { cause, ...(!error && { by: 'agent' }) });
    this.#drain.refuseDials(lost);
    for (const stream of streams) stream.lost(lost);
    for (const pending of [...this.#pending.values()]) pending.fail(this.#drain.errorOf(lost));
    this.#drain.over(lost);
  }

  /** Go's peers keep it in an int64 and expect it to be positive. */
  #random(): bigint {
    for (;;) {
      const random = randomBytes(8).readBigUInt64BE() >> 1n;
      if (random !== 0n && !this.#pending.has(random)) return random;
    }
  }
}

function cannotResume(): DialError {
  const cause = new AttachRefused('Go agents resume no tunnels', { final: true });
  return new DialError('connection_terminated', cause.message, { cause });
}
