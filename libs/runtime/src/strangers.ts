import { isIPv6, type Socket } from 'node:net';
import { remoteOf } from './addresses.ts';
import { BySource } from './by-source.ts';

/**
 * After this long, a connection gives its place to a new one that finds none, in milliseconds. Honest peers that arrive together are
 * admitted well before, once they have a place: 1,000 handshakes take 5 s.
 */
const PATIENCE = 10_000;

/**
 * How long a peer may take to send its first byte, in milliseconds: longer than the round trip of a TLS handshake with a lost SYN (1
 * s). A peer that sends nothing spends nothing, so that must not get it a place.
 */
const FIRST_BYTE = 5_000;

/** How much of an IPv6 address counts as a source: a host with one address has its network of 64 bits. */
const IPV6_GROUPS = 4;

export interface StrangerLimits {
  /** Waiting connections in all. */
  readonly most: number;
  /** Those of one source address. */
  readonly mostOfSource: number;
  /** How long a connection may wait, in milliseconds. */
  readonly deadlineMs: number;
  /** What errors call the limits: the flags that set them, if there are any. */
  readonly names: { readonly most: string; readonly mostOfSource: string };
}

interface Stranger {
  readonly socket: Socket;
  readonly key: string;
  readonly source: string;
  readonly since: number;
  /** The timers until its first byte, and until it is admitted. */
  readonly deadlines: readonly NodeJS.Timeout[];
}

/**
 * Connections whose peers have not proven who they are. Each has a handshake, buffers and a window, so their number is limited, and
 * further ones are refused before they cost anything. If all sources together are too many, a new connection replaces one of the source
 * that has the most, so a flood locks out itself. If no source stands out, a new connection of a source without any replaces the one
 * that has waited longest, if that had its time.
 */
export class Strangers {
  readonly #limits: StrangerLimits;
  readonly #refused: (remote: string, error: Error) => void;
  /** By both ends' addresses, which a TLS socket shares with the socket below it. In order of arrival. */
  readonly #waiting = new Map<string, Stranger>();
  readonly #sources = new BySource<Stranger>();

  constructor(limits: StrangerLimits, refused: (remote: string, error: Error) => void) {
    this.#limits = limits;
    this.#refused = refused;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Call with a new connection. Returns false if it was refused and closed. */
  enter(socket: Socket): boolean {
    const { remoteAddress } = socket;
    const key = endsOf(socket);
    // For unix sockets, the file's permissions have decided.
    if (remoteAddress === undefined || this.#waiting.has(key)) return true;
    const source = sourceOf(remoteAddress);
    const refusal = this.#makeRoom(source);
    if (refusal) {
      this.#refused(remoteOf(socket), refusal);
      socket.destroy();
      return false;
    }
    this.#add(socket, key, source);
    return true;
  }

  /** Call when the peer has proven who it is, or has gone. */
  leave(socket: Socket): void {
    const stranger = this.#waiting.get(endsOf(socket));
    if (stranger) this.#remove(stranger);
  }

  #add(socket: Socket, key: string, source: string): void {
    const { deadlineMs } = this.#limits;
    const late = () => this.#end(stranger, new Error(`not admitted within ${deadlineMs / 1000} s`));
    const begun = () => {
      if (socket.bytesRead === 0) this.#end(stranger, new Error(`it sent nothing within ${FIRST_BYTE / 1000} s`));
    };
    const deadlines = [setTimeout(begun, FIRST_BYTE).unref(), setTimeout(late, deadlineMs).unref()];
    const stranger: Stranger = { socket, key, source, since: performance.now(), deadlines };
    this.#waiting.set(key, stranger);
    this.#sources.add(source, stranger);
    socket.once('close', () => this.#remove(stranger));
  }

  #remove(stranger: Stranger): void {
    for (const deadline of stranger.deadlines) clearTimeout(deadline);
    if (this.#waiting.get(stranger.key) === stranger) this.#waiting.delete(stranger.key);
    this.#sources.delete(stranger.source, stranger);
  }

  #end(stranger: Stranger, error: Error): void {
    this.#remove(stranger);
    this.#refused(remoteOf(stranger.socket), error);
    stranger.socket.destroy();
  }

  /** Returns why there is none. */
  #makeRoom(source: string): Error | undefined {
    const { most, mostOfSource, names } = this.#limits;
    const own = this.#sources.of(source);
    if (own && own.size >= mostOfSource) {
      const error = new Error(
        `${mostOfSource} connections from ${source} are already waiting to be admitted: ${names.mostOfSource}`,
      );
      return this.#takePlace(own, error);
    }
    if (this.#waiting.size < most) return undefined;
    const error = new Error(`${most} connections are already waiting to be admitted: ${names.most}`);
    const heaviest = this.#sources.most;
    if (heaviest === undefined || heaviest.size <= (own?.size ?? 0) + 1) {
      return this.#takePlace(own ?? this.#waiting.values(), error);
    }
    this.#end(first(heaviest), error);
    return undefined;
  }

  /** Takes the place of the connection that has waited longest, if that had its time. */
  #takePlace(among: Iterable<Stranger>, error: Error): Error | undefined {
    const oldest = first(among);
    if (performance.now() - oldest.since < PATIENCE) return error;
    this.#end(oldest, error);
    return undefined;
  }
}

/** Returns the source of an address, which limits count. */
export function sourceOf(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '');
  if (!isIPv6(plain)) return plain;
  const [before = '', after] = plain.split('::') as [string, string | undefined];
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const zeros = after === undefined ? 0 : 8 - head.length - tail.length;
  const groups = [...head, ...Array.from({ length: Math.max(0, zeros) }, () => '0'), ...tail];
  return `${groups.slice(0, IPV6_GROUPS).join(':')}::/64`;
}

/** Both ends, because one remote address and port may be connected to several addresses here. */
function endsOf(socket: Socket): string {
  return `${remoteOf(socket)} ${socket.localAddress}:${socket.localPort}`;
}

function first(strangers: Iterable<Stranger>): Stranger {
  const [oldest] = strangers;
  return oldest as Stranger;
}
