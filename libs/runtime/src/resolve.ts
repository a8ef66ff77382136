import { type LookupAddress, lookup, Resolver } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import { type NameService, nameService } from './name-service.ts';

/** Called once, later, unless nobody waits for the answer any more. The error's code is one of getaddrinfo's, or ETIMEOUT. */
export type Resolved = (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void;

/** Whatever getaddrinfo takes for an address, as inet_aton(3) does: 127.1, 0x7f000001. */
const NUMERIC = /(^|\.)(\d+|0x[\da-f]*)$/i;

/** What getaddrinfo does at once: libuv has as many threads for it. Others wait here, where they can be given up. */
const SYSTEM_AT_ONCE = 2;

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

/** getaddrinfo, a few at a time. */
class SystemNames {
  readonly #lookup: typeof lookup;
  readonly #queue: (() => void)[] = [];
  #running = 0;

  constructor(system: typeof lookup) {
    this.#lookup = system;
  }

  find(name: string, asked: Lookup): Promise<readonly LookupAddress[]> {
    return new Promise((resolve, reject) => {
      const start = () => {
        this.#running++;
        this.#lookup(name, { all: true }, (error, addresses) => {
          this.#running--;
          this.#queue.shift()?.();
          if (error) reject(error);
          else resolve(addresses);
        });
      };
      asked.cancel = () => {
        const at = this.#queue.indexOf(start);
        if (at >= 0) this.#queue.splice(at, 1);
      };
      if (this.#running < SYSTEM_AT_ONCE) start();
      else this.#queue.push(start);
    });
  }
}

/**
 * Resolves names as getaddrinfo does: by the hosts file, then by DNS with the search domains of resolv.conf. getaddrinfo itself would block
 * one of libuv's two threads for slow work until its servers answer: two names whose servers are silent stop all other names for minutes.
 * Here, questions wait in c-ares, which takes any number. What these files cannot tell is left to getaddrinfo: names that only another
 * service of nsswitch.conf knows.
 */
export class Names {
  readonly #service: () => NameService;
  readonly #system: SystemNames;
  readonly #underWay = new Map<string, Lookup>();

  /** @param etc where the files are */
  constructor(etc?: string, system = lookup) {
    this.#service = nameService(etc);
    this.#system = new SystemNames(system);
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
      (addresses) => finish(null, addresses),
      (error) => finish(error, []),
    );
    return started;
  }

  async #find(name: string, asked: Lookup): Promise<readonly LookupAddress[]> {
    if (!KNOWS_FILES || NUMERIC.test(name)) return this.#system.find(name, asked);
    const service = this.#service();
    for (const source of service.sources) {
      const found = source === 'files' ? service.hosts.get(name.toLowerCase()) : await askServers(name, service, asked);
      if (found) return inOrder(found);
    }
    if (service.others) return this.#system.find(name, asked);
    throw failure('ENOTFOUND', name);
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

/** @param signal stops the wait */
export async function resolveName(name: string, signal?: AbortSignal): Promise<readonly LookupAddress[]> {
  signal?.throwIfAborted();
  let stop = () => {};
  try {
    return await new Promise((resolve, reject) => {
      const wait = names.resolve(name, (error, addresses) => (error ? reject(error) : resolve(addresses)));
      stop = () => {
        wait();
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', stop, { once: true });
    });
  } finally {
    signal?.removeEventListener('abort', stop);
  }
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
    const resolver = new Resolver({ timeout, tries });
    resolver.setServers(servers);
    asked.cancel = () => resolver.cancel();
    answer = await bothFamilies(resolver, full, service);
    // One family may have answered while the other failed.
    if (answer.addresses.length > 0 || !UNSURE.includes(answer.code ?? '')) return answer;
  }
}

async function bothFamilies(resolver: Resolver, full: string, { noAaaa }: NameService): Promise<Answer> {
  const answers = await Promise.all(
    noAaaa ? [one(resolver, full, 4)] : [one(resolver, full, 6), one(resolver, full, 4)],
  );
  return {
    addresses: answers.flatMap(({ addresses }) => addresses),
    code: answers.find(({ code }) => code !== undefined)?.code,
  };
}

function one(resolver: Resolver, full: string, family: 4 | 6): Promise<Answer> {
  return new Promise((resolve) => {
    const done = (error: NodeJS.ErrnoException | null, found: readonly string[] = []) => {
      if (!error) resolve({ addresses: found.map((address) => ({ address, family })) });
      // A name that cannot be: too long, or with empty labels.
      else if (['ENOTFOUND', 'ENODATA', 'EBADNAME'].includes(error.code ?? '')) resolve({ addresses: [] });
      else resolve({ addresses: [], code: error.code ?? 'ESERVFAIL' });
    };
    if (family === 4) resolver.resolve4(full, done);
    else resolver.resolve6(full, done);
  });
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
  const useless = six.filter(({ address }) => !(address === '::1' ? usable.loopback : usable.other));
  const useful = six.filter((each) => !useless.includes(each));
  const turns = Array.from({ length: Math.max(useful.length, four.length) }, (_, turn) => [useful[turn], four[turn]]);
  return [...turns.flat().filter((each) => each !== undefined), ...useless];
}

function failure(code: string, hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo ${code} ${hostname}`), { code, syscall: 'getaddrinfo', hostname });
}
