import type { LookupAddress } from 'node:dns';
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
import { hostname } from 'node:os';

/** How this machine resolves names, by the files that getaddrinfo reads. */
export interface NameService {
  /** `files` and `dns`, in the order in which they are asked (nsswitch.conf(5)). */
  readonly sources: readonly string[];
  /** Whether others come before or after them, as mDNS. */
  readonly others: boolean;
  /** By lower-case name (hosts(5)). */
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
}

/** What glibc takes of resolv.conf: so many servers, and at most these values. */
const MOST_SERVERS = 3;
const MOST_NDOTS = 15;
const MOST_TIMEOUT_S = 30;
const MOST_ATTEMPTS = 5;

/** Where no file says otherwise. glibc waits for 5 s, which is as long as a dial may take: a single lost packet would fail it. */
const TIMEOUT_S = 2;
const ATTEMPTS = 2;

/** A file as it was parsed last, until it changes. */
class Followed<T> {
  readonly #path: string;
  readonly #parse: (text: string) => T;
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
    this.#value = this.#parse(stat ? readFileSync(this.#path, 'utf8') : '');
    this.#seen = seen;
    return this.#value;
  }
}

/** Returns what reads the files of a directory, each again once it has changed. */
export function nameService(etc = '/etc'): () => NameService {
  const hosts = new Followed(`${etc}/hosts`, readHosts);
  const resolver = new Followed(`${etc}/resolv.conf`, readResolver);
  const order = new Followed(`${etc}/nsswitch.conf`, readOrder);
  return () => ({ hosts: hosts.read(), ...resolver.read(), ...order.read() });
}

function readOrder(text: string): Pick<NameService, 'sources' | 'others'> {
  const [, line = 'files dns'] = /^\s*hosts:(.*)$/m.exec(text.replace(/#.*/g, '')) ?? [];
  const services = line
    .replace(/\[[^\]]*\]/g, ' ')
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
    for (const name of names.map((each) => each.toLowerCase())) {
      const known = hosts.get(name);
      if (!known) hosts.set(name, [{ address, family }]);
      else if (!known.some((each) => each.address === address)) known.push({ address, family });
    }
  }
  return hosts;
}

function readResolver(text: string): Omit<NameService, 'hosts' | 'sources' | 'others'> {
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
    timeout: 1000 * Math.max(1, number('timeout', TIMEOUT_S, MOST_TIMEOUT_S)),
    attempts: Math.max(1, number('attempts', ATTEMPTS, MOST_ATTEMPTS)),
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
