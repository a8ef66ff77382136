import { isIP, type Socket } from 'node:net';
import { connectFirst, guarding, names, RUNTIME } from '@isthmus/runtime';
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
  /** What its name was resolved to last. */
  hosts: readonly Host[] = [];
  /** Connections through this process. */
  open = 0;
  /** Why it cannot be an API server's, as far as is known. */
  fault: string | undefined;
  /** When its name began to be resolved last, and who waits for that. */
  resolvedAt = Number.NEGATIVE_INFINITY;
  readonly waiting: ((error?: NodeJS.ErrnoException) => void)[] = [];
  again: NodeJS.Timeout | undefined;

  constructor(text: string, ofObject: boolean) {
    this.text = text;
    this.ofObject = ofObject;
    this.to = parseDestination(text);
  }

  get named(): boolean {
    return isIP(this.to.host) === 0;
  }
}

/** One that an address is resolved to. */
interface Host {
  readonly address: Address;
  readonly ip: string;
  open: number;
  trouble: Trouble | undefined;
  probe: NodeJS.Timeout | undefined;
}

/** What a host did when it failed last. Set until it answers again; of one that hung up on a client, or led back here, that says little. */
type Trouble = 'silent' | 'hangs-up' | 'leads-back';

/** One that an object names is another than the same of the plane's operators: it may be less. */
function keyOf({ text, ofObject }: Pick<Address, 'text' | 'ofObject'>): string {
  return `${ofObject} ${text}`;
}

/** A connection that stands, and what it is to. */
export interface Reached {
  readonly socket: Socket;
  readonly address: string;
  readonly host: Host;
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
 * (RFC 8305), until one stands. A host that refused or stayed silent comes last until it answers again, which is tried apart from clients: so a
 * dead one costs none of them anything.
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
    for (const address of all) if (address.named && address.hosts.length === 0) this.#resolve(address, () => {});
    for (const address of this.#addresses.values()) if (!all.has(address)) this.#forget(address);
  }

  /** Why an address cannot be an API server's; undefined if that is not known of it. */
  fault(text: string, ofObject = false): string | undefined {
    const address = this.#addresses.get(keyOf({ text, ofObject }));
    return address?.fault ?? (address?.hosts.some(({ trouble }) => trouble === 'leads-back') ? LEADS_BACK : undefined);
  }

  /** A connection came back to the plane. */
  leadsBack({ host }: Reached): void {
    this.#fails(host, 'leads-back');
  }

  /** It ended a client's connection without a byte. As it has the fewest, it would get all others, too. */
  hangsUp({ host }: Reached): void {
    this.#fails(host, 'hangs-up');
  }

  count({ host }: Reached, by: 1 | -1): void {
    host.open += by;
    host.address.open += by;
  }

  /** Connects. @returns what gives up */
  connect(texts: readonly string[], { reached, failed }: Reaching, ofObject = false): GiveUp {
    const addresses = texts.map((text) => this.#of(text, ofObject));
    const [first] = addresses as [Address, ...Address[]];
    /** Those whose names may stand for other hosts by now. */
    const old = new Set<Address>();
    let giveUp: GiveUp = () => {};
    let waiting = 0;
    let over = false;
    let timer: NodeJS.Timeout | undefined;
    let problem: NodeJS.ErrnoException | undefined;
    const start = () => {
      clearTimeout(timer);
      const hosts = inOrder(addresses);
      over = hosts.length > 0;
      if (over) giveUp = this.#race(hosts, { reached, failed });
      else if (waiting === 0) failed(problem ?? new Error(first.fault), first.text);
    };
    for (const address of addresses) {
      const isRecent = performance.now() - address.resolvedAt < TRANSPORT.apiServerNameMs;
      if (!address.named || (isRecent && address.waiting.length === 0)) continue;
      waiting++;
      if (address.hosts.length > 0) old.add(address);
      this.#resolve(address, (error) => {
        waiting--;
        old.delete(address);
        problem ??= error;
        if (!over && old.size === 0) start();
      });
    }
    // If nobody says soon what a name stands for now, what it stood for before is used.
    const until = Math.max(...[...old].map(({ resolvedAt }) => resolvedAt)) + RUNTIME.connectApartMs;
    if (old.size > 0) timer = setTimeout(this.#guarded(first, start), until - performance.now());
    else if (waiting === 0 || addresses.some(({ hosts }) => hosts.length > 0)) start();
    return (late) => {
      over = true;
      clearTimeout(timer);
      giveUp(late);
    };
  }

  close(): void {
    this.#closed = true;
    for (const address of this.#addresses.values()) stopTimers(address);
  }

  #guarded({ text }: Address, act: () => void): () => void {
    return guarding((error) => void this.#options.events.emit('fault', 'api-server', text, error))(act);
  }

  #of(text: string, ofObject: boolean): Address {
    const key = keyOf({ text, ofObject });
    const known = this.#addresses.get(key);
    if (known) return known;
    const address = new Address(text, ofObject);
    if (!address.named) this.#judge(address, [address.to.host]);
    this.#addresses.set(key, address);
    return address;
  }

  #forget(address: Address): void {
    if (address.open > 0) return;
    stopTimers(address);
    this.#addresses.delete(keyOf(address));
  }

  #race(hosts: readonly Host[], { reached, failed }: Reaching): GiveUp {
    const [first] = hosts as [Host, ...Host[]];
    /** Those under way, in the order in which they were begun. */
    const trying = new Map<Socket, Host>();
    const giveUp = connectFirst(
      hosts.map((_, index) => String(index)),
      {
        open: (index) => {
          const host = hosts[Number(index)] as Host;
          const socket = openTo(host.ip, host.address.to.port);
          trying.set(socket, host);
          socket.once('error', () => {
            if (trying.delete(socket)) this.#fails(host, 'silent');
          });
          return socket;
        },
        connected: (socket) => {
          const host = trying.get(socket) as Host;
          // Those that were begun before it are silent.
          for (const [before, silent] of trying) {
            if (before === socket) break;
            this.#fails(silent, 'silent');
          }
          trying.clear();
          // Whether it leads back is for its probe to find out.
          if (host.trouble !== 'leads-back') answers(host);
          reached({ socket, address: host.address.text, host });
        },
        failed: (error) => failed(error instanceof AggregateError ? error.errors[0] : error, first.address.text),
      },
    );
    return (late) => {
      if (late) for (const silent of trying.values()) this.#fails(silent, 'silent');
      trying.clear();
      giveUp();
    };
  }

  #fails(host: Host, trouble: Trouble): void {
    if (!this.#isIn(host)) return;
    const wasIn = host.trouble;
    if (wasIn === undefined || wasIn === 'silent' || trouble === 'leads-back') host.trouble = trouble;
    if (wasIn === undefined) this.#probeLater(host);
  }

  #isIn({ address, ip }: Host): boolean {
    const isOf = this.#addresses.get(keyOf(address)) === address && address.hosts.some((each) => each.ip === ip);
    return isOf && !this.#closed;
  }

  #probeLater(host: Host): void {
    if (!this.#isIn(host)) return;
    clearTimeout(host.probe);
    const ms = host.trouble === 'silent' ? TRANSPORT.apiServerProbeMs : TRANSPORT.apiServerNameMs;
    host.probe = setTimeout(
      this.#guarded(host.address, () => this.#probe(host)),
      ms,
    ).unref();
  }

  #probe(host: Host): void {
    const { address } = host;
    const again = () => this.#probeLater(host);
    const connect = () => {
      if (!this.#isIn(host)) return;
      const socket = openTo(host.ip, address.to.port).setTimeout(TRANSPORT.apiServerProbeConnectMs);
      socket.on('timeout', () => socket.destroy(new Error('silent'))).on('error', again);
      socket.on('connect', () => {
        socket.off('error', again).on('error', () => {});
        socket.destroy();
        answers(host);
      });
    };
    // One that led back may be another's by now.
    if (host.trouble === 'leads-back') host.trouble = 'silent';
    if (address.named) this.#resolve(address, connect);
    else connect();
  }

  /** Keeps what the name was resolved to before, if it cannot be resolved now. */
  #resolve(address: Address, done: (error?: NodeJS.ErrnoException) => void): void {
    if (address.waiting.push(done) > 1) return;
    address.resolvedAt = performance.now();
    clearTimeout(address.again);
    names.resolve(address.to.host, (error, found) => {
      this.#guarded(address, () => {
        const waiting = address.waiting.splice(0);
        if (error) address.fault = `${address.to.host} cannot be resolved: ${error.message}`;
        else
          this.#judge(
            address,
            found.map((each) => each.address),
          );
        const isKept = !this.#closed && this.#addresses.get(keyOf(address)) === address;
        const again = this.#guarded(address, () => this.#resolve(address, () => {}));
        if (address.fault !== undefined && isKept) address.again = setTimeout(again, TRANSPORT.apiServerNameMs).unref();
        for (const each of waiting) each(error ?? undefined);
      })();
    });
  }

  /** Leaves only those that may be an API server's. */
  #judge(address: Address, resolved: readonly string[]): void {
    const { text, to, ofObject, hosts } = address;
    const refusals = resolved.map((ip) => this.#options.prohibited(ip, to.port, ofObject));
    const allowed = resolved.filter((_, index) => refusals[index] === undefined);
    address.hosts = allowed.map(
      (ip) => hosts.find((each) => each.ip === ip) ?? { address, ip, open: 0, trouble: undefined, probe: undefined },
    );
    const [why] = refusals;
    address.fault =
      why === 'own-ports' ? `${text} is the plane itself: ${why}` : `${text} is denied: ${why ?? 'no address'}`;
    if (allowed.length > 0) address.fault = undefined;
  }
}

const LEADS_BACK = 'a connection there came back to the plane';

function answers(host: Host): void {
  host.trouble = undefined;
  clearTimeout(host.probe);
}

function stopTimers({ again, hosts }: Address): void {
  clearTimeout(again);
  for (const { probe } of hosts) clearTimeout(probe);
}

/** Those that fail come last, and those that cannot be an API server's behind them; else those with the fewest connections first. */
function inOrder(addresses: readonly Address[]): readonly Host[] {
  return addresses
    .flatMap(({ hosts }) => hosts)
    .map((host) => ({ host, rank: rank(host), chance: Math.random() }))
    .sort(
      (a, b) =>
        a.rank - b.rank ||
        a.host.address.open - b.host.address.open ||
        a.host.open - b.host.open ||
        a.chance - b.chance,
    )
    .map(({ host }) => host);
}

function rank({ trouble, address }: Host): number {
  return address.fault !== undefined || trouble === 'leads-back' ? 2 : trouble ? 1 : 0;
}
