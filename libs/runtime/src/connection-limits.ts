import type { Socket } from 'node:net';
import { addressOf, bytesFrom, remoteOf, sourceOf } from './addresses.ts';
import { countIn, Grouped, getOrPut, Queue } from './collections.ts';
import { RUNTIME } from './defaults.ts';

/**
 * What several groups share: memory that the tunnels of a process may still use beyond what each has in any case, in bytes, or places. One
 * group may use all of it. Once a second one has asked, no group gets more than what it would leave to the others: the first half of the
 * budget, the second a quarter, and so on. So none can take all.
 */
export class SharedBudget {
  #left: number;
  readonly #taken = new Map<string, number>();
  #first: string | undefined;
  #shared: boolean;

  /** @param shared whether there are several groups in any case, so that not even the first may use all */
  constructor(amount: number, shared = false) {
    this.#left = amount;
    this.#shared = shared;
  }

  get left(): number {
    return this.#left;
  }

  /** @param group a tenant's; without one there is no share to keep to */
  take(amount: number, group?: string): boolean {
    if (amount > this.#left) return false;
    if (group !== undefined) {
      this.#first ??= group;
      this.#shared ||= group !== this.#first;
      const taken = (this.#taken.get(group) ?? 0) + amount;
      if (this.#shared && taken > this.#left - amount) return false;
      this.#taken.set(group, taken);
    }
    this.#left -= amount;
    return true;
  }

  /** @param group that took them */
  give(amount: number, group?: string): void {
    this.#left += amount;
    if (group !== undefined) countIn(this.#taken, group, -amount);
  }
}

export interface WaitingLimits {
  /** Waiting connections in all. */
  readonly most: number;
  /** Those of one source address. */
  readonly mostOfSource: number;
  /** How long a connection may wait, in milliseconds. */
  readonly deadlineMs: number;
  /** What errors call the limits: the flags that set them, if there are any. */
  readonly names: { readonly most: string; readonly mostOfSource: string };
}

/**
 * The waiting connections of several ports of a process, which share a budget. Sources count over all ports: a peer that reaches many gets
 * no more than at one, and a source that has the most at all of them gives up places first.
 */
export class WaitingPool {
  /** Shared places. */
  readonly most: number;
  readonly all = new Grouped<Waiting>();
  /** Those that have shared places: the others have their ports' own. */
  readonly sharing = new Grouped<Waiting>();
  readonly slots = new HandshakeSlots();

  /** @param most waiting connections of all ports, besides the places that each has for itself */
  constructor(most: number) {
    this.most = most;
  }

  get size(): number {
    return this.all.size;
  }
}

interface Waiting {
  readonly port: WaitingConnections;
  readonly socket: Socket;
  readonly key: string;
  readonly source: string;
  readonly since: number;
  /** Whether it has a place that only its port has. */
  readonly ownPlace: boolean;
  /** The timers until its first byte, and until it is admitted. */
  readonly deadlines: readonly NodeJS.Timeout[];
  /** Its listener for the end of the socket, which must not keep all this as long as the socket. */
  readonly gone: () => void;
  freeSlot: FreeSlot | undefined;
  /** Whether its handshake is over. */
  greeted?: true;
}

/**
 * Which connections of each source are begun: those that have a slot. A slot is free again once its peer has proven who it is, or has gone
 * without a byte; otherwise only after a while, also if the connection has ended. So handshakes cost their sender time. The newest that waits
 * is next: behind the same address, who comes beside a flood has the odds of what comes then, not all that came before in front of it. After that it
 * is the turn of the one that has waited longest: some that come again and again must not stay in front of it.
 */
class HandshakeSlots {
  readonly #sources = new Map<string, { taken: number; newest: boolean; readonly waiting: (() => void)[] }>();
  /** Begun one in each tick of the event loop, so that nothing else waits for all of them. */
  readonly #next = new Queue<() => void>();

  /** Calls `begin`, now or when one of the source's slots is free. Returns what to call when this one is over, or not wanted any more. */
  take(source: string, begin: () => void): FreeSlot {
    const { handshakeSlots: most, handshakeSlotMs } = RUNTIME;
    const own = getOrPut(this.#sources, source, () => ({ taken: 0, newest: true, waiting: [] as (() => void)[] }));
    let timer: NodeJS.Timeout | undefined;
    const over = () => {
      timer = undefined;
      const next = own.newest ? own.waiting.pop() : own.waiting.shift();
      own.newest = !own.newest;
      if (next) this.#soon(next);
      else if (--own.taken === 0) this.#sources.delete(source);
    };
    const start = (longer = 0) => {
      timer = setTimeout(over, handshakeSlotMs * (1 + longer)).unref();
      begin();
    };
    // Those that are begun at once end one by one, so that those behind them are not begun at once again.
    if (own.taken < most) start(own.taken++ / most);
    else own.waiting.push(start);
    return (atOnce) => {
      const at = own.waiting.indexOf(start);
      if (at >= 0) own.waiting.splice(at, 1);
      if (!timer || !atOnce) return;
      clearTimeout(timer);
      over();
    };
  }

  #soon(start: () => void): void {
    const step = () => {
      const first = this.#next.shift();
      if (this.#next.size > 0) setImmediate(step);
      first?.();
    };
    this.#next.push(start);
    if (this.#next.size === 1) setImmediate(step);
  }
}

/** @param atOnce whether it is free now, and not only after a while */
type FreeSlot = (atOnce: boolean) => void;

/**
 * Connections whose peers have not proven who they are. Each has a handshake, buffers and a window, so their number is limited, and
 * further ones are refused before they cost anything. If all sources together are too many, a new connection replaces one of the source
 * that has the most, so a flood locks out itself. If no source stands out, a new connection of a source without any replaces the one
 * that has waited longest, if that had its time.
 */
export class WaitingConnections {
  readonly #limits: WaitingLimits;
  readonly #refused: (remote: string, error: Error) => void;
  /** By both ends' addresses, which a TLS socket shares with the socket below it. */
  readonly #waiting = new Map<string, Waiting>();
  readonly #sources = new Grouped<Waiting>();
  readonly #pool: WaitingPool;
  #ownPlaces = 0;

  /** @param pool the budget that it shares with other ports of the process */
  constructor(
    limits: WaitingLimits,
    refused: (remote: string, error: Error) => void,
    pool = new WaitingPool(limits.most),
  ) {
    this.#limits = limits;
    this.#refused = refused;
    this.#pool = pool;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Whether some are in their handshake. */
  get greets(): boolean {
    return [...this.#waiting.values()].some(({ greeted }) => !greeted);
  }

  /** Call with a new connection. Returns false if it was refused and closed. */
  enter(socket: Socket): boolean {
    const address = addressOf(socket);
    // For unix sockets, the file's permissions have decided.
    if (address === undefined) return true;
    const key = endsOf(socket);
    if (this.#waiting.has(key)) return true;
    const source = sourceOf(address);
    const refusal = this.#makeRoom(source);
    if (refusal) {
      this.#refused(remoteOf(socket), refusal);
      socket.destroy();
      return false;
    }
    this.#add(socket, key, source);
    return true;
  }

  /** Calls `begin` when a connection that entered may cost something: once its source has a slot for it. */
  whenSlotIsFree(socket: Socket, begin: () => void): void {
    const waiting = this.#of(socket);
    if (!waiting) {
      begin();
      return;
    }
    let begun = false;
    const { waitingBytes } = RUNTIME;
    const look = () => {
      if (socket.readableLength > waitingBytes)
        this.#end(waiting, new Error(`it sent more than ${waitingBytes / 1024} KiB before it had a slot`));
    };
    const start = () => {
      begun = true;
      socket.off('readable', look);
      // It may have been reset just now.
      if (!socket.destroyed) begin();
    };
    const freeSlot = this.#pool.slots.take(waiting.source, start);
    // Where connecting is proof enough (no TLS), `begin` has already called `leave`.
    if (this.#waiting.get(waiting.key) === waiting) waiting.freeSlot = freeSlot;
    else freeSlot(true);
    // Nobody listens to it until then.
    if (!begun) socket.on('error', () => {}).on('readable', look);
  }

  /** Call when the handshake is over, where that is no proof. */
  greeted(socket: Socket): void {
    const waiting = this.#of(socket);
    if (waiting) waiting.greeted = true;
  }

  /** Call when the peer has proven who it is, and may be refused all the same: it keeps its place until then, and no slot. */
  proved(socket: Socket): void {
    this.#of(socket)?.freeSlot?.(true);
  }

  /** Call when the peer has proven who it is and may stay, or has gone. */
  leave(socket: Socket): void {
    const waiting = this.#of(socket);
    if (waiting) this.#remove(waiting, true);
  }

  /** Ends all that wait. */
  close(): void {
    for (const { socket } of [...this.#waiting.values()]) socket.destroy();
  }

  /** Nothing waits at a unix socket, and each look at its ends costs calls. */
  #of(socket: Socket): Waiting | undefined {
    return this.#waiting.size === 0 ? undefined : this.#waiting.get(endsOf(socket));
  }

  #add(socket: Socket, key: string, source: string): void {
    const { deadlineMs } = this.#limits;
    const late = () => this.#end(waiting, new Error(`not admitted within ${deadlineMs / 1000} s`));
    const begun = () => {
      if (bytesFrom(socket) === 0)
        this.#end(waiting, new Error(`it sent nothing within ${RUNTIME.firstByteMs / 1000} s`));
    };
    const deadlines = [setTimeout(begun, RUNTIME.firstByteMs).unref(), setTimeout(late, deadlineMs).unref()];
    const ownPlace = this.#ownPlaces < RUNTIME.waitingOwnPlaces;
    const since = performance.now();
    const gone = () => this.#remove(waiting);
    const waiting: Waiting = { port: this, socket, key, source, since, ownPlace, deadlines, gone, freeSlot: undefined };
    this.#waiting.set(key, waiting);
    for (const places of this.#placesOf(waiting)) places.add(source, waiting);
    if (ownPlace) this.#ownPlaces++;
    socket.once('close', gone);
  }

  #remove(waiting: Waiting, proven = false): void {
    for (const deadline of waiting.deadlines) clearTimeout(deadline);
    if (this.#waiting.get(waiting.key) !== waiting) return;
    this.#waiting.delete(waiting.key);
    waiting.socket.off('close', waiting.gone);
    waiting.freeSlot?.(proven || bytesFrom(waiting.socket) === 0);
    for (const places of this.#placesOf(waiting)) places.delete(waiting.source, waiting);
    if (waiting.ownPlace) this.#ownPlaces--;
  }

  #placesOf({ ownPlace }: Waiting): Grouped<Waiting>[] {
    const { all, sharing } = this.#pool;
    return ownPlace ? [this.#sources, all] : [this.#sources, all, sharing];
  }

  #end(waiting: Waiting, error: Error): void {
    this.#remove(waiting);
    this.#refused(remoteOf(waiting.socket), error);
    waiting.socket.destroy();
  }

  /** Returns why there is none. */
  #makeRoom(source: string): Error | undefined {
    const { most, mostOfSource, names } = this.#limits;
    const { all, sharing, most: mostShared } = this.#pool;
    if ((all.of(source)?.size ?? 0) >= mostOfSource) {
      const error = new Error(
        `${mostOfSource} connections from ${source} are already waiting to be admitted: ${names.mostOfSource}`,
      );
      return this.#takePlace(error, this.#sources.of(source) ?? []);
    }
    if (this.size >= most) {
      const error = new Error(`${most} connections are already waiting to be admitted: ${names.most}`);
      return this.#replace(source, this.#sources, this.#sources, error);
    }
    if (this.#ownPlaces < RUNTIME.waitingOwnPlaces || sharing.size < mostShared) return undefined;
    const error = new Error(
      `${all.size} connections are already waiting to be admitted at the ports of this program: ${names.most}`,
    );
    return this.#replace(source, sharing, all, error);
  }

  /** @param counted how many the source has, compared to the source that has the most of the places */
  #replace(source: string, places: Grouped<Waiting>, counted: Grouped<Waiting>, error: Error): Error | undefined {
    const heaviest = places.most ?? new Set();
    const [oldest] = heaviest;
    if (oldest && heaviest.size > (counted.of(source)?.size ?? 0) + 1) {
      oldest.port.#end(oldest, error);
      return undefined;
    }
    const own = places.of(source);
    return own ? this.#takePlace(error, own) : this.#takePlace(error, this.#sources.all, places.all);
  }

  /** Takes the place of the connection that has waited longest, if that had its time: of the first of these groups that has one. */
  #takePlace(error: Error, ...groups: readonly Iterable<Waiting>[]): Error | undefined {
    for (const group of groups) {
      const [oldest] = group;
      if (!oldest || performance.now() - oldest.since < RUNTIME.waitingPatienceMs) continue;
      oldest.port.#end(oldest, error);
      return undefined;
    }
    return error;
  }
}

/** Both ends, because one remote address and port may be connected to several addresses here. */
function endsOf(socket: Socket): string {
  const { remoteAddress, remotePort, localAddress, localPort } = socket;
  return `${remoteAddress}:${remotePort} ${localAddress}:${localPort}`;
}

interface AdmittedLimits {
  /** Whether a new connection takes the place of one that has asked for nothing longest: see `Admitted.asked`. Default: it is refused. */
  readonly displaces?: boolean;
  /** Connections, in all. */
  readonly most: number;
  /** Of those, from one source address. */
  readonly mostOfSource: number;
}

/**
 * The connections of a port for operators and machines that watch, limited in all, by source and by tenant: one tenant's operators get no
 * more than they leave to others. Further ones are refused; or, where anyone may connect, they take the places of those that are silent: of the
 * same source if it has too many, else of the source with the most. So no source shuts out another, nor itself.
 */
export class Admitted {
  readonly #limits: AdmittedLimits;
  readonly #refused: (remote: string, error: Error) => void;
  /** In the order in which they came, or asked last. */
  readonly #sources = new Grouped<Socket>();
  readonly #places: SharedBudget;
  /** Of each open connection: gives its place up. */
  readonly #leave = new WeakMap<Socket, () => void>();

  constructor(limits: AdmittedLimits, refused: (remote: string, error: Error) => void) {
    this.#limits = limits;
    this.#places = new SharedBudget(limits.most, true);
    this.#refused = refused;
  }

  /** Returns false if it was refused and closed. @param tenant whose operator it is; unset: the plane's */
  enter(socket: Socket, tenant?: string): boolean {
    // If it has closed already, no close event may follow.
    if (socket.destroyed) return true;
    const source = sourceOf(socket.remoteAddress ?? '');
    if (this.#limits.displaces) this.#makeRoom(source);
    const full = this.#full(source, tenant);
    if (full) {
      this.#refused(remoteOf(socket), full);
      socket.destroy();
      return false;
    }
    this.#sources.add(source, socket);
    const leave = () => {
      if (!this.#leave.delete(socket)) return;
      this.#sources.delete(source, socket);
      this.#places.give(1, tenant);
    };
    this.#leave.set(socket, leave);
    socket.once('close', leave);
    return true;
  }

  /** Call when a connection asks for something: it then keeps its place before those that do not. */
  asked(socket: Socket): void {
    if (!this.#leave.has(socket)) return;
    const source = sourceOf(socket.remoteAddress ?? '');
    this.#sources.delete(source, socket);
    this.#sources.add(source, socket);
  }

  #makeRoom(source: string): void {
    const { most, mostOfSource } = this.#limits;
    const own = this.#sources.of(source);
    const { size } = this.#sources;
    const tooMany = own && own.size >= mostOfSource;
    if (!tooMany && size < most) return;
    const [silent] = (tooMany ? own : this.#sources.most) ?? [];
    if (!silent) return;
    this.#leave.get(silent)?.();
    const open = tooMany ? `${mostOfSource} are open from ${source}` : `${most} are open`;
    this.#refused(remoteOf(silent), new Error(`it made room for a new connection: ${open}`));
    silent.destroy();
  }

  #full(source: string, tenant: string | undefined): Error | undefined {
    const { mostOfSource } = this.#limits;
    const own = this.#sources.of(source)?.size ?? 0;
    if (own >= mostOfSource) return new Error(`${own} connections from ${source} are open: close some of them`);
    if (this.#places.take(1, tenant)) return undefined;
    const { size } = this.#sources;
    const whose = tenant === undefined ? '' : `, and those of tenant ${tenant} leave too few to others`;
    return new Error(`${size} connections are open${whose}: close some of them`);
  }
}
