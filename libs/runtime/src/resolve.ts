import { type LookupAddress, lookup, promises } from 'node:dns';
import { statSync } from 'node:fs';
import { isIP, type LookupFunction } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { Semaphore } from './async.ts';
import { RUNTIME } from './defaults.ts';
import { readNamedFile, reasonOf } from './files.ts';

/** How this machine resolves names, by the files that getaddrinfo reads. */
interface NameService {
  /** `files` and `dns`, in the order in which they are asked (nsswitch.conf(5)). */
  readonly sources: readonly string[];
  /** Whether others come before or after them, as mDNS. */
  readonly others: boolean;
  /** By `hostsKey` (hosts(5)). */
  readonly hosts: ReadonlyMap<string, readonly LookupAddress[]>;
  /** resolv.conf(5), as the fields below. */
  readonly servers: readonly string[];
  readonly search: readonly string[];
  readonly ndots: number;
  /** For the first question to a server, in milliseconds. */
  readonly timeout: number;
  readonly attempts: number;
  readonly rotate: boolean;
  readonly noAaaa: boolean;
  /** Files that are not read. */
  readonly faults: readonly string[];
}

/** What glibc takes of resolv.conf: so many servers, and at most these values. */
const MOST_SERVERS = 3;
const MOST_NDOTS = 15;
const MOST_TIMEOUT_S = 30;
const MOST_ATTEMPTS = 5;

/** A file as it was parsed last, until it changes. What was read stays while it cannot be read, or is empty: who writes it in place begins so. */
class Followed<T> {
  readonly #path: string;
  readonly #parse: (text: string) => T;
  /** Why it is not read; empty if it is. */
  fault = '';
  #seen = '';
  #value: T;

  constructor(path: string, parse: (text: string) => T) {
    this.#path = path;
    this.#parse = parse;
    this.#value = parse('');
  }

  /** A file that is not there counts as empty. */
  read(): T {
    const stat = statSync(this.#path, { throwIfNoEntry: false });
    const seen = stat ? `${stat.ino} ${stat.mtimeMs} ${stat.size}` : '';
    if (seen === this.#seen) return this.#value;
    try {
      const text = stat ? readNamedFile(this.#path, RUNTIME.nameFileBytes).toString() : '';
      if (!stat || text !== '') this.#value = this.#parse(text);
      this.#seen = seen;
      this.fault = '';
    } catch (error) {
      this.fault = `${this.#path}: ${reasonOf(error)}`;
    }
    return this.#value;
  }
}

/** Returns what reads the files of a directory, each again once it has changed. */
function nameService(etc = '/etc'): () => NameService {
  const hosts = new Followed(`${etc}/hosts`, readHosts);
  const resolver = new Followed(`${etc}/resolv.conf`, readResolver);
  const order = new Followed(`${etc}/nsswitch.conf`, readOrder);
  return () => {
    const read = { hosts: hosts.read(), ...resolver.read(), ...order.read() };
    return { ...read, faults: [hosts, resolver, order].flatMap(({ fault }) => fault || []) };
  };
}

function readOrder(text: string): Pick<NameService, 'sources' | 'others'> {
  const [, line = 'files dns'] = /^[ \t]*hosts:(.*)$/m.exec(text.replace(/#.*/g, '')) ?? [];
  const services = line
    .replace(/\[[^[\]]*\]/g, ' ')
    .split(/\s+/)
    .filter(Boolean);
  const sources = services.filter((service) => service === 'files' || service === 'dns');
  return { sources, others: sources.length < services.length };
}

function readHosts(text: string): NameService['hosts'] {
  const hosts = new Map<string, LookupAddress[]>();
  for (const line of text.split('\n')) {
    const [address = '', ...names] = words(line);
    const family = isIP(address);
    if (family === 0) continue;
    for (const name of names.map(hostsKey)) {
      const known = hosts.get(name);
      if (!known) hosts.set(name, [{ address, family }]);
      else if (!known.some((each) => each.address === address)) known.push({ address, family });
    }
  }
  return hosts;
}

/** Names of the hosts file are whole, so a last dot says nothing, as with Go. */
function hostsKey(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}

function readResolver(text: string): Omit<NameService, 'hosts' | 'sources' | 'others' | 'faults'> {
  const { LOCALDOMAIN: ownSearch, RES_OPTIONS: ownOptions = '' } = process.env;
  const servers: string[] = [];
  const options: string[] = [];
  // Of a host with a full name, the domain.
  let search: readonly string[] = [hostname().replace(/^[^.]*\.?/, '')].filter(Boolean);
  for (const line of text.split('\n')) {
    const [keyword, ...values] = words(line);
    const [server = ''] = values;
    if (keyword === 'nameserver' && isServer(server) && servers.length < MOST_SERVERS) servers.push(server);
    // The last one counts.
    else if (keyword === 'search' || keyword === 'domain') search = values;
    else if (keyword === 'options') options.push(...values);
  }
  options.push(...words(ownOptions));
  const number = (name: string, otherwise: number, most: number) => {
    const value = Number(options.findLast((option) => option.startsWith(`${name}:`))?.slice(name.length + 1));
    return Number.isInteger(value) && value >= 0 ? Math.min(value, most) : otherwise;
  };
  return {
    servers: servers.length > 0 ? servers : ['127.0.0.1'],
    search: ownSearch === undefined ? search : words(ownSearch),
    ndots: number('ndots', 1, MOST_NDOTS),
    timeout: 1000 * Math.max(1, number('timeout', RUNTIME.nameMs / 1000, MOST_TIMEOUT_S)),
    attempts: Math.max(1, number('attempts', RUNTIME.nameAttempts, MOST_ATTEMPTS)),
    rotate: options.includes('rotate'),
    noAaaa: options.includes('no-aaaa'),
  };
}

/** Ours may have a port, as in tests. */
function isServer(text: string): boolean {
  return isIP(text.replace(/^\[|\]?:\d+$/g, '')) !== 0 || isIP(text) !== 0;
}

function words(line: string): string[] {
  return line
    .replace(/[#;].*/, '')
    .split(/\s+/)
    .filter(Boolean);
}

/** Called once, later, unless nobody waits for the answer any more. The error's code is one of getaddrinfo's, or ETIMEOUT. */
type Resolved = (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void;

/** Whatever getaddrinfo takes for an address, as inet_aton(3) does: 127.1, 0x7f000001. */
const NUMERIC = /(^|\.)(\d+|0x[\da-f]*)$/i;

/** Elsewhere, other files than these say how names are resolved, and Deno has threads enough for getaddrinfo. */
const KNOWS_FILES = process.platform === 'linux' && process.versions.deno === undefined;

/** A server that says this does not know whether the name exists. Another may. */
const UNSURE = ['ESERVFAIL', 'EREFUSED', 'ENOTIMP', 'EFORMERR'];

/** A name that is being resolved, once for all who wait for it. */
interface Lookup {
  readonly waiters: Set<Resolved>;
  /** Ends what is under way for it. */
  cancel: () => void;
}

/**
 * Resolves names as getaddrinfo does: by the hosts file, then by DNS with the search domains of resolv.conf. getaddrinfo itself would block
 * one of libuv's two threads for slow work until its servers answer: two names whose servers are silent stop all other names for minutes.
 * Here, questions wait in c-ares, which takes any number. What these files cannot tell is left to getaddrinfo: names that only another
 * service of nsswitch.conf knows.
 */
export class Names {
  readonly #service: () => NameService;
  /** getaddrinfo, of which a few run at a time. */
  readonly #system: typeof lookup;
  readonly #turns = new Semaphore(RUNTIME.systemNames);
  readonly #underWay = new Map<string, Lookup>();

  /** @param etc where the files are */
  constructor(etc?: string, system = lookup) {
    this.#service = nameService(etc);
    this.#system = system;
  }

  /** Names that are being resolved. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /** @returns what stops waiting. When nobody waits any more, no question is left behind. */
  resolve(name: string, done: Resolved): () => void {
    const asked = this.#underWay.get(name) ?? this.#start(name);
    // One waiter may ask twice.
    const waiter: Resolved = (error, addresses) => done(error, addresses);
    asked.waiters.add(waiter);
    return () => {
      if (!asked.waiters.delete(waiter) || asked.waiters.size > 0) return;
      asked.cancel();
      if (this.#underWay.get(name) === asked) this.#underWay.delete(name);
    };
  }

  #start(name: string): Lookup {
    const started: Lookup = { waiters: new Set(), cancel: () => {} };
    this.#underWay.set(name, started);
    const finish: Resolved = (error, addresses) => {
      if (this.#underWay.get(name) === started) this.#underWay.delete(name);
      const waiters = [...started.waiters];
      started.waiters.clear();
      for (const done of waiters) done(error, addresses);
    };
    this.#find(name, started).then(
      (addresses) => finish(null, addresses.slice(0, RUNTIME.nameAddresses)),
      (error) => finish(error, []),
    );
    return started;
  }

  async #find(name: string, asked: Lookup): Promise<readonly LookupAddress[]> {
    if (!KNOWS_FILES || NUMERIC.test(name)) return this.#findBySystem(name, asked);
    const service = this.#service();
    for (const source of service.sources) {
      const found = source === 'files' ? service.hosts.get(hostsKey(name)) : await askServers(name, service, asked);
      if (found) return inOrder(found);
    }
    if (service.others) return this.#findBySystem(name, asked);
    throw failure('ENOTFOUND', name, service.faults);
  }

  #findBySystem(name: string, asked: Lookup): Promise<readonly LookupAddress[]> {
    const cancelled = new AbortController();
    asked.cancel = () => cancelled.abort(failure('ECANCELLED', name));
    const find = (resolve: (found: LookupAddress[]) => void, reject: (error: Error) => void) =>
      this.#system(name, { all: true }, (error, found) => (error ? reject(error) : resolve(found)));
    return this.#turns.take(() => new Promise(find), '', cancelled.signal);
  }
}

/** As this process resolves them. */
export const names = new Names();

/** For sockets that others open: as dns.lookup. */
export const lookupName: LookupFunction = (name, { all, family }, callback) => {
  const wanted = family === 4 || family === 'IPv4' ? 4 : family === 6 || family === 'IPv6' ? 6 : 0;
  names.resolve(name, (error, addresses) => {
    const found = addresses.filter((each) => wanted === 0 || each.family === wanted);
    const [first] = found;
    const missing = error ?? (first ? null : failure('ENOTFOUND', name));
    if (all) callback(missing, found as LookupAddress[]);
    else callback(missing, first?.address ?? '', first?.family);
  });
};

/** @param signal stops the wait. It is of this name alone, since it keeps what waits */
export function resolveName(name: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = names.resolve(name, (error, addresses) => (error ? reject(error) : resolve(addresses)));
    signal.addEventListener('abort', () => {
      stop();
      reject(signal.reason);
    });
  });
}

/** Asks for a name with each search domain in turn, as res_search(3). Returns undefined if none of them exists. */
async function askServers(name: string, service: NameService, asked: Lookup): Promise<LookupAddress[] | undefined> {
  let unsure = false;
  for (const full of candidates(name, service)) {
    const { addresses, code } = await ask(full, service, asked);
    if (addresses.length > 0) return addresses;
    if (asked.waiters.size === 0) throw failure('ECANCELLED', name);
    // A silent server would be as silent about the next one.
    if (code === 'ETIMEOUT') throw failure('ETIMEOUT', name);
    if (code === 'ECONNREFUSED') throw failure('EAI_AGAIN', name);
    unsure ||= code !== undefined;
  }
  if (unsure) throw failure('EAI_FAIL', name);
  return undefined;
}

/** The names to ask for, in turn: with few dots, those in the search domains come first. */
function candidates(name: string, { search, ndots }: NameService): readonly string[] {
  if (name.endsWith('.')) return [name.slice(0, -1)];
  const within = search.map((domain) => (domain === '.' ? name : `${name}.${domain}`));
  return name.split('.').length > ndots ? [name, ...within] : [...within, name];
}

interface Answer {
  readonly addresses: LookupAddress[];
  /** Why it is not known whether the name exists. */
  readonly code?: string | undefined;
}

/** Asks for the addresses of a name: one server, and the next if that is silent, or does not know. */
async function ask(full: string, service: NameService, asked: Lookup): Promise<Answer> {
  const { timeout, attempts: tries, rotate } = service;
  const first = rotate ? Math.floor(Math.random() * service.servers.length) : 0;
  const servers = [...service.servers.slice(first), ...service.servers.slice(0, first)];
  for (let answer: Answer = { addresses: [] }; ; servers.shift()) {
    if (servers.length === 0) return answer;
    // Its own, so that it can be cancelled.
    const longer = timeout > RUNTIME.caresMs && { maxTimeout: timeout };
    const resolver = new promises.Resolver({ timeout, tries, ...longer });
    resolver.setServers(servers);
    asked.cancel = () => resolver.cancel();
    answer = await bothFamilies(resolver, full, service);
    // One family may have answered while the other failed.
    if (answer.addresses.length > 0 || !UNSURE.includes(answer.code ?? '')) return answer;
  }
}

async function bothFamilies(resolver: promises.Resolver, full: string, { noAaaa }: NameService): Promise<Answer> {
  const answers = await Promise.all(
    noAaaa ? [one(resolver, full, 4)] : [one(resolver, full, 6), one(resolver, full, 4)],
  );
  return {
    addresses: answers.flatMap(({ addresses }) => addresses),
    code: answers.find(({ code }) => code !== undefined)?.code,
  };
}

async function one(resolver: promises.Resolver, full: string, family: 4 | 6): Promise<Answer> {
  try {
    const found = await (family === 4 ? resolver.resolve4(full) : resolver.resolve6(full));
    return { addresses: found.map((address) => ({ address, family })) };
  } catch (error) {
    const { code = 'ESERVFAIL' } = error as NodeJS.ErrnoException;
    // A name that cannot be is one that is not there: too long, or with empty labels.
    return { addresses: [], code: ['ENOTFOUND', 'ENODATA', 'EBADNAME'].includes(code) ? undefined : code };
  }
}

/** Both families in turn (RFC 8305 section 4), IPv6 first, and last what this machine has no address for (RFC 6724 section 6, rule 1). */
function inOrder(found: readonly LookupAddress[]): readonly LookupAddress[] {
  const four = found.filter(({ family }) => family === 4);
  if (four.length === 0 || four.length === found.length) return found;
  const own = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const hasOwn = (local: boolean) =>
    own.some(
      ({ family, internal, address }) => family === 'IPv6' && internal === local && !address.startsWith('fe80:'),
    );
  const usable = { loopback: hasOwn(true), other: hasOwn(false) };
  const six = found.filter(({ family }) => family === 6);
  const isUseful = ({ address }: LookupAddress) => (address === '::1' ? usable.loopback : usable.other);
  const useful = six.filter(isUseful);
  const useless = six.filter((each) => !isUseful(each));
  const turns = Array.from({ length: Math.max(useful.length, four.length) }, (_, turn) => [useful[turn], four[turn]]);
  return [...turns.flat().filter((each) => each !== undefined), ...useless];
}

function failure(code: string, hostname: string, faults: readonly string[] = []): NodeJS.ErrnoException {
  const message = [`getaddrinfo ${code} ${hostname}`, ...faults].join('; ');
  return Object.assign(new Error(message), { code, syscall: 'getaddrinfo', hostname });
}
