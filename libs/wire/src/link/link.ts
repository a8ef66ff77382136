import type { Socket } from 'node:net';
import { guarding } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';
import { Connection, greeting } from '../http2/connection.ts';
import { DuplexStream } from '../http2/duplex.ts';
import { type Head, headOf, type OutgoingHead } from '../http2/heads.ts';
import type { Http2Stream } from '../http2/stream.ts';
import type { StreamRules } from '../http2/streams.ts';
import { afterReads, type Readers } from '../http2/ticks.ts';

export interface Http2LinkOptions {
  readonly role: 'client' | 'server';
  /** Connected, after the TLS handshake. The link owns it from now on. */
  readonly socket: Socket;
  /** Times, sizes and counts. Default: `WIRE`. */
  readonly config?: Partial<Config>;
  /** Default: both sides are trusted, and may cancel many requests at once. */
  readonly rules?: StreamRules;
  /** Those that it is read in turns with: the other links of a tenant. Default: none. */
  readonly readers?: Readers | undefined;
  /** Makes the error that open streams get when the link ends. Default: the reason itself. */
  readonly lost?: (reason: Error) => Error;
}

type Http2LinkEvents = {
  /** At the server: the other side opened a stream, which needs a handler at once. */
  begun: [stream: Http2Stream, head: Head];
  /** The same as a Duplex, if nobody listens to `begun`. */
  stream: [stream: DuplexStream, head: Head];
  /** No new stream can be opened, because the other side is leaving or the ids are used up. Open streams continue. */
  goaway: [];
  /** A listener threw. That is a bug in the listener, and it ends the link. */
  fault: [error: Error];
  /** The link has ended, with all its streams. */
  close: [reason: Error];
};

/** Shared by all links: a small buffer that lives as long as a link keeps the whole 64 KiB that it was cut from. */
const USUAL = { client: greeting('client', WIRE), server: greeting('server', WIRE) };

/** One side of a connection whose streams are Duplexes, as links use it. */
export class Http2Link extends Connection<Http2LinkEvents> {
  constructor({ role, socket, config: given, rules = {}, readers, lost = (reason) => reason }: Http2LinkOptions) {
    const config = given ? { ...WIRE, ...given } : WIRE;
    super(socket, {
      role,
      config,
      greeting: config === WIRE ? USUAL[role] : greeting(role, config),
      rules,
      defer: afterReads,
      latePongs: false,
      lost,
      opened: (stream, request) => {
        const head = headOf(request);
        if (!this.emit('begun', stream, head)) this.emit('stream', new DuplexStream(stream), head);
      },
      goaway: (reason) => (reason ? this.destroy(reason) : this.#leave()),
      fault: (error) => this.emit('fault', error),
      ended: (reason) => this.#ended(reason),
    });
    if (readers) this.reads.readers = readers;
    this.ping();
    this.start();
  }

  /** As `begin`, but the stream is a Duplex from the beginning. */
  request(head: OutgoingHead): DuplexStream {
    return new DuplexStream(this.begin(head));
  }

  /** No stream can be opened here any more: the other side is leaving, or the ids are used up. */
  #leave(): void {
    if (!this.closed) this.emit('goaway');
    this.close();
  }

  /** Even if one listener throws, the others are called. */
  #ended(reason: Error): void {
    for (const listener of this.rawListeners('close')) this.guarded(() => Reflect.apply(listener, this, [reason]))();
  }
}

/** How long a link may be silent before this side sends a PING, where it is not the usual second. */
export interface PingInterval {
  /** Whole seconds. */
  readonly seconds: number;
  /** Whether it counts only while the link carries nothing. */
  readonly atRest: boolean;
}

/** Calls all checks from one timer. In a process with thousands of idle links, thousands of timers would cost more than the checks. */
export class LinkChecks {
  readonly #checks = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;
  /** When the timer rang last. */
  #rangAt = 0;

  /** Returns a function that removes the check. */
  add(check: () => void): () => void {
    this.#checks.add(check);
    if (!this.#timer) {
      this.#rangAt = performance.now();
      this.#timer = setInterval(() => this.#ring(), WIRE.checkEveryMs).unref();
    }
    return () => {
      this.#checks.delete(check);
      if (this.#checks.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  /** What arrived while this process stood still waits in its sockets, and a timer rings before they are read: then the checks wait for that. */
  #ring(): void {
    const now = performance.now();
    const late = now - this.#rangAt - WIRE.checkEveryMs;
    this.#rangAt = now;
    if (late < WIRE.checkEveryMs) this.#look();
    else setImmediate(() => this.#look());
  }

  #look(): void {
    for (const each of this.#checks) each();
  }
}

/** The checks of all links of this process. */
const CHECKS = new LinkChecks();

export interface LivenessOptions {
  readonly ping?: PingInterval | undefined;
  readonly carries?: () => boolean;
  /** Called when the link has been silent for so long that others should be used, and when it was heard again. */
  readonly suspected?: ((is: boolean) => void) | undefined;
  readonly checks?: LinkChecks;
}

/**
 * Ends a link that has gone silent because of a hung process or a half-open connection. The first side that finds the link silent sends a
 * PING. The other side hears it, and need not send one itself, so an idle link carries one PING in 1.25 s. A side that only receives sends
 * PINGs too: on a slow path, the other side hears only an occasional WINDOW_UPDATE, and its own PING waits behind its data.
 *
 * Silence is counted in checks, not in time, and a check that is late looks only once the sockets were read: a process that was stopped, or too
 * busy to check, does not blame its peers for that time.
 *
 * Silence is evidence, not proof: a silent link is suspected first, and ended after three times the patience.
 *
 * @param ping a longer interval. A dead link is found after 2.25 to 2.5 times this long, and never sooner than otherwise. The other side may send its PINGs sooner. It may send
 * them later only while the link carries nothing: bulk data could hide its answers
 * @param carries whether the link carries anything
 * @returns whether the process at the other side may have died just now: it was heard as it should be, and it may not have read what was
 * sent since the last check, or in the 250 ms before it. Not for a link at rest, which is checked more rarely and carries nothing
 */
export function watchLiveness(
  link: Http2Link,
  dead: (error: Error) => void,
  { ping, carries = () => false, suspected = () => {}, checks = CHECKS }: LivenessOptions = {},
): () => boolean {
  const { seconds = 1, atRest = false } = ping ?? {};
  let { bytesRead, bytesWritten } = link;
  /** Checks in a row without a byte from the other side, and without one to it. */
  let [silent, unsent] = [0, 0];
  /** Checks since the PING that a silence led to. Undefined if there was none, or if the other side was heard since. */
  let waited: number | undefined;
  /** Checks that were passed over, as a link at rest needs few. */
  let passed = 0;
  let isSuspect = false;
  const roundTrip = () => Math.floor((link.rtt || WIRE.unknownRoundTripMs) / WIRE.checkEveryMs);
  const check = () => {
    const scale = atRest && carries() ? 1 : seconds;
    passed++;
    if (atRest && passed < scale) return;
    const [read, written] = [link.bytesRead, link.bytesWritten];
    silent = read === bytesRead ? silent + passed : 0;
    unsent = written === bytesWritten ? unsent + passed : 0;
    if (waited !== undefined) waited = silent === 0 ? undefined : waited + passed;
    bytesRead = read;
    bytesWritten = written;
    passed = 0;
    const ask = WIRE.pingAfterChecks * scale;
    const patience = WIRE.suspectAfterChecks * scale - ask;
    const overdue = waited === undefined ? -1 : waited - roundTrip();
    if (overdue >= patience !== isSuspect) {
      isSuspect = !isSuspect;
      suspected(isSuspect);
    }
    if (overdue >= Math.max(patience, WIRE.deadAfterChecks - WIRE.pingAfterChecks)) {
      dead(new Error(`silent for ${(silent * WIRE.checkEveryMs) / 1000} s, even to PING`));
      return;
    }
    if (silent >= ask && waited === undefined) waited = 0;
    else if (unsent < ask) return;
    unsent = 0;
    link.ping();
  };
  // An exception in one check must not skip the others.
  const quit = checks.add(guarding(dead)(check));
  link.once('close', quit);
  return () => {
    const heard = (waited ?? 0) <= 1 + roundTrip() || link.bytesRead !== bytesRead;
    return heard && (unsent === 0 || link.bytesWritten !== bytesWritten);
  };
}
