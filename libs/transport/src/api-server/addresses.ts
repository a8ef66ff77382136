import { isIP, type Socket } from 'node:net';
import { connectFirst, guarding, names } from '@isthmus/runtime';
import { type Destination, type PlaneEvents, type Prohibited, parseDestination } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { openTo } from '../endpoint.ts';

/** Says what no API server is at, by an address after DNS. @param ofObject whether an object names it, and no file of the plane's operators */
export type ApiServerProhibited = (...at: [...Parameters<Prohibited>, ofObject: boolean]) => ReturnType<Prohibited>;

interface AddressesOptions {
  readonly prohibited: ApiServerProhibited;
  readonly events: PlaneEvents;
}

/** One of the addresses of an API server, as it is known here. */
class Address {
  readonly text: string;
  readonly to: Destination;
  readonly ofObject: boolean;
  /** Connections through this hub. */
  open = 0;
  /** Whether it refused or stayed silent, and has not answered since. */
  failing = false;
  /** Whether it ended a client's connection without a byte, when it last failed: that it accepts others says little. */
  hangsUp = false;
  /** Why it cannot be an API server's, as far as is known. */
  fault: string | undefined;
  /** Those that it was resolved to last. */
  resolved: readonly string[] | undefined;
  resolvedAt = 0;
  probe: NodeJS.Timeout | undefined;

  constructor(text: string, ofObject: boolean) {
    this.text = text;
    this.ofObject = ofObject;
    this.to = parseDestination(text);
    if (isIP(this.to.host) !== 0) this.resolved = [this.to.host];
  }

  get named(): boolean {
    return isIP(this.to.host) === 0;
  }
}

/** One that an object names is another than the same of the plane's operators: it may be less. */
function keyOf({ text, ofObject }: Pick<Address, 'text' | 'ofObject'>): string {
  return `${ofObject} ${text}`;
}

/** A connection that stands, and the address that it is to. */
export interface Reached {
  readonly socket: Socket;
  readonly address: string;
  readonly ofObject: boolean;
}

interface Reaching {
  readonly reached: (reached: Reached) => void;
  /** Gets the error of the address that came first, with that address. */
  readonly failed: (error: NodeJS.ErrnoException, address: string) => void;
}

/** @param late whether those that are under way have had their time */
type GiveUp = (late: boolean) => void;

/**
 * The addresses of all API servers. A connection is tried with that of the fewest connections, and beside it with others, one after the other
 * (RFC 8305), until one stands. One that refused or stayed silent comes last until it answers again, which is tried apart from clients: so a dead
 * one costs none of them anything.
 */
export class ApiServerAddresses {
  readonly #options: AddressesOptions;
  readonly #addresses = new Map<string, Address>();
  #closed = false;

  constructor(options: AddressesOptions) {
    this.#options = options;
  }

  /**
   * Resolves names, and forgets what is not in use any more.
   * @param own all addresses in force that the plane's operators name
   * @param ofObjects all that objects name
   */
  follow(own: Iterable<string>, ofObjects: Iterable<string> = []): void {
    const all = new Set([...own].map((text) => this.#of(text, false)));
    for (const text of ofObjects) all.add(this.#of(text, true));
    for (const address of all) if (address.named && !address.resolved) this.#resolve(address, () => {});
    for (const address of this.#addresses.values()) if (!all.has(address)) this.#forget(address);
  }

  /** Why an address cannot be an API server's; undefined if that is not known of it. */
  fault(text: string, ofObject = false): string | undefined {
    return this.#addresses.get(keyOf({ text, ofObject }))?.fault;
  }

  /** A connection to an address came back to the plane. */
  leadsBack({ address: text, ofObject }: Reached): void {
    const address = this.#of(text, ofObject);
    address.fault = LEADS_BACK;
    this.#fails(address);
  }

  /** It ended a client's connection without a byte. As it has the fewest, it would get all others, too. */
  hangsUp({ address: text, ofObject }: Reached): void {
    const address = this.#addresses.get(keyOf({ text, ofObject }));
    if (!address) return;
    address.hangsUp = true;
    this.#fails(address);
  }

  count({ address, ofObject }: Reached, by: 1 | -1): void {
    this.#of(address, ofObject).open += by;
  }

  /** Connects. @returns what gives up */
  connect(texts: readonly string[], { reached, failed }: Reaching, ofObject = false): GiveUp {
    const order = texts
      .map((text) => ({ address: this.#of(text, ofObject), chance: Math.random() }))
      .sort((a, b) => rank(a.address) - rank(b.address) || a.address.open - b.address.open || a.chance - b.chance)
      .map(({ address }) => address);
    const [first] = order as [Address, ...Address[]];
    let giveUp: GiveUp = () => {};
    let waiting = 0;
    let over = false;
    let problem: NodeJS.ErrnoException | undefined;
    const start = () => {
      const candidates = order.flatMap((address) => (address.resolved ?? []).map((host) => ({ address, host })));
      over = candidates.length > 0;
      if (over) giveUp = this.#race(candidates, { reached, failed: (error) => failed(error, first.text) });
      else if (waiting === 0) failed(problem ?? new Error(first.fault), first.text);
    };
    for (const address of order) {
      const known = address.resolved !== undefined;
      const recent = performance.now() - address.resolvedAt < TRANSPORT.apiServerNameMs;
      if (!address.named || (recent && (known || address.fault))) continue;
      // What it was resolved to before is used meanwhile.
      if (!known) waiting++;
      this.#resolve(address, (error) => {
        if (known || over) return;
        waiting--;
        problem ??= error;
        start();
      });
    }
    if (waiting === 0 || order.some(({ resolved }) => resolved !== undefined)) start();
    return (late) => {
      over = true;
      giveUp(late);
    };
  }

  close(): void {
    this.#closed = true;
    for (const { probe } of this.#addresses.values()) clearTimeout(probe);
  }

  #of(text: string, ofObject: boolean): Address {
    const key = keyOf({ text, ofObject });
    const known = this.#addresses.get(key);
    if (known) return known;
    const address = new Address(text, ofObject);
    this.#judge(address);
    this.#addresses.set(key, address);
    return address;
  }

  #forget(address: Address): void {
    if (address.open > 0) return;
    clearTimeout(address.probe);
    this.#addresses.delete(keyOf(address));
  }

  #race(
    candidates: readonly { readonly address: Address; readonly host: string }[],
    { reached, failed }: Pick<Reaching, 'reached'> & { failed: (error: NodeJS.ErrnoException) => void },
  ): GiveUp {
    /** Those under way, in the order in which they were begun. */
    const trying = new Map<Socket, Address>();
    const giveUp = connectFirst(
      candidates.map((_, index) => String(index)),
      {
        open: (index) => {
          const { address, host } = candidates[Number(index)] as (typeof candidates)[number];
          const socket = openTo(host, address.to.port);
          trying.set(socket, address);
          socket.once('error', () => {
            if (trying.delete(socket)) this.#fails(address);
          });
          return socket;
        },
        connected: (socket) => {
          const address = trying.get(socket) as Address;
          // Those that were begun before it are silent.
          for (const [before, silent] of trying) {
            if (before === socket) break;
            if (silent !== address) this.#fails(silent);
          }
          trying.clear();
          this.#answers(address);
          reached({ socket, address: address.text, ofObject: address.ofObject });
        },
        failed: (error) => failed(error instanceof AggregateError ? error.errors[0] : error),
      },
    );
    return (late) => {
      if (late) for (const silent of trying.values()) this.#fails(silent);
      trying.clear();
      giveUp();
    };
  }

  #fails(address: Address): void {
    if (address.failing || this.#closed || !this.#addresses.has(keyOf(address))) return;
    address.failing = true;
    this.#probeLater(address);
  }

  #answers(address: Address): void {
    address.failing = false;
    address.hangsUp = false;
    clearTimeout(address.probe);
    address.probe = undefined;
  }

  #probeLater(address: Address): void {
    if (this.#closed || !this.#addresses.has(keyOf(address))) return;
    clearTimeout(address.probe);
    const isSoon = address.fault === undefined && !address.hangsUp;
    const ms = isSoon ? TRANSPORT.apiServerProbeMs : TRANSPORT.apiServerNameMs;
    address.probe = setTimeout(() => this.#probe(address), ms).unref();
  }

  #probe(address: Address): void {
    const again = () => this.#probeLater(address);
    const connect = () => {
      const [host] = address.resolved ?? [];
      if (host === undefined || address.fault !== undefined) return again();
      const socket = openTo(host, address.to.port).setTimeout(TRANSPORT.apiServerProbeConnectMs);
      socket.on('timeout', () => socket.destroy(new Error('silent'))).on('error', again);
      socket.on('connect', () => {
        socket.off('error', again).on('error', () => {});
        socket.destroy();
        this.#answers(address);
      });
    };
    // One that led back may be another's by now.
    if (address.fault === LEADS_BACK) address.fault = undefined;
    if (address.named) this.#resolve(address, connect);
    else connect();
  }

  /** Keeps what the name was resolved to before, if it cannot be resolved now. */
  #resolve(address: Address, done: (error?: NodeJS.ErrnoException) => void): void {
    address.resolvedAt = performance.now();
    const guarded = guarding((error) => void this.#options.events.emit('fault', 'api-server', address.text, error));
    const resolved = guarded((error: Error | null, found: readonly { readonly address: string }[]) => {
      if (error) address.fault = `${address.to.host} cannot be resolved: ${error.message}`;
      else {
        address.resolved = found.map((each) => each.address);
        address.fault = undefined;
        this.#judge(address);
      }
      if (address.fault !== undefined) this.#fails(address);
      done(error ?? undefined);
    });
    names.resolve(address.to.host, resolved);
  }

  /** Leaves only the addresses that may be an API server's. */
  #judge(address: Address): void {
    const { resolved, text, to, ofObject } = address;
    if (!resolved) return;
    const refusals = resolved.map((host) => this.#options.prohibited(host, to.port, ofObject));
    const allowed = resolved.filter((_, index) => refusals[index] === undefined);
    address.resolved = allowed;
    if (allowed.length > 0) return;
    const [why] = refusals;
    address.fault =
      why === 'own-ports' ? `${text} is the plane itself: ${why}` : `${text} is denied: ${why ?? 'no address'}`;
  }
}

const LEADS_BACK = 'a connection there came back to the plane';

/** Those that fail come last, and those that cannot be an API server's behind them. */
function rank({ failing, fault }: Address): number {
  return fault !== undefined ? 2 : failing ? 1 : 0;
}
