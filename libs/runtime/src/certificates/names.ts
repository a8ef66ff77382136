import { isIP } from 'node:net';
import { addressBytes } from '../addresses.ts';
import { RUNTIME } from '../defaults.ts';
import { DerReader, rowOf, TAG } from './der.ts';

/** Names of a certificate's subjectAltName. */
export interface SubjectNames {
  readonly dns: readonly string[];
  readonly emails: readonly string[];
  /** 4 or 16 bytes each. */
  readonly ips: readonly Buffer[];
  readonly uris: readonly string[];
}

/** Names that an authority may issue, or may not (RFC 5280 section 4.2.1.10). `ips` are addresses with their masks. */
export interface Constraints {
  readonly permitted: SubjectNames;
  readonly excluded: SubjectNames;
}

/** A certificate, as far as it names what it is for, or what an authority may name. */
interface Named {
  readonly names: SubjectNames | undefined;
  readonly constraints: Constraints | undefined;
  /** For people. */
  readonly subjectText: string;
}

/** Whether a certificate is for a host: a DNS name or an address of its subjectAltName. Its common name does not count, as in Go. */
export function isFor({ names }: Pick<Named, 'names'>, host: string): boolean {
  const address = addressBytes(host.replace(/^\[(.*)\]$/, '$1'));
  if (address) return (names?.ips ?? []).some((ip) => mapped(ip).equals(mapped(address)));
  const wanted = lower(host);
  const parts = wanted.replace(/\.$/, '').split('.');
  return (names?.dns ?? []).some((name) => {
    const pattern = lower(name);
    if (!isHost(wanted.replace(/\.$/, ''), false) || !isHost(pattern, true))
      return pattern === wanted && !/^\.?$/.test(wanted);
    const labels = pattern.split('.');
    return (
      labels.length === parts.length && labels.every((label, at) => (at === 0 && label === '*') || label === parts[at])
    );
  });
}

/** Of ASCII alone: other letters may become ASCII's. */
function lower(text: string): string {
  return text.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** Only a pattern may have `*`, as its whole first label, and not alone. */
function isHost(text: string, pattern: boolean): boolean {
  if (text === '*') return false;
  return text
    .split('.')
    .every((label, at) => (pattern && at === 0 && label === '*') || /^[a-z0-9_][a-z0-9_-]*$/i.test(label));
}

/** For people: `10.0.0.1`, or an IPv6 address without abbreviations. */
export function addressText(address: Buffer): string {
  return address.length === 4 ? address.join('.') : (address.toString('hex').match(/.{4}/g) ?? []).join(':');
}

const MAPPED = Buffer.from('00000000000000000000ffff', 'hex');

/** An IPv4 address is the same in both lengths. */
function mapped(address: Buffer): Buffer {
  return address.length === 4 ? Buffer.concat([MAPPED, address]) : address;
}

/** Go's domainNameValid. @param constraint whether it may begin with a dot */
export function isDomain(text: string, constraint: boolean): boolean {
  if (text === '') return true;
  return (constraint ? text.replace(/^\./, '') : text).split('.').every(isLabel);
}

function isLabel(label: string): boolean {
  return /^[!-~]+$/.test(label);
}

/** The host of a URI with its port; empty if it has none. @throws Error if it is no URI */
export function uriHost(uri: string): string {
  if (!/^[ -~]*$/.test(uri) || /%(?![0-9a-f]{2})/i.test(uri) || /^:/.test(uri))
    throw new Error('it has a malformed URI');
  const [, scheme, authority = ''] = /^([^:/?#]*:)?(?:\/\/([^/?#]*))?/.exec(uri) ?? [];
  if (scheme !== undefined && !/^[a-z][a-z0-9+.-]*:$/i.test(scheme)) throw new Error('it has a malformed URI');
  const host = authority.slice(authority.lastIndexOf('@') + 1);
  // Found without a regular expression: one that backtracks takes the square of the length, and nobody knows the peer yet.
  const bracket = host.lastIndexOf(']');
  const colon = host.indexOf(':', bracket + 1);
  const sound =
    (colon < 0 || /^\d*$/.test(host.slice(colon + 1))) &&
    /^[\w\-.~!$&'()*+,;=:[\]<>"%]*$/.test(host) &&
    // Of ASCII, Go takes only a percent sign itself as an escape in a host.
    !/%(?!25)[0-7][0-9a-f]/i.test(host) &&
    host.startsWith('[') === bracket > 0;
  if (!sound) throw new Error('it has a malformed URI');
  return host;
}

/** A mailbox (RFC 2821), with its domain in lower case. Undefined: it is none, or its local part is quoted. */
export function parsedMailbox(text: string): { readonly local: string; readonly domain: string } | undefined {
  const [, local, domain = ''] = /^((?:\\.|[\w!#$%&'*+\-/=?^`{|}~.])+)@(.*)$/s.exec(text) ?? [];
  if (local === undefined || /^\.|\.$|\.\./.test(local)) return undefined;
  if (domain !== '' && !domain.split('.').every(isLabel)) return undefined;
  return { local: local.replaceAll(/\\(.)/gs, '$1'), domain: domain.toLowerCase() };
}

function count(names: SubjectNames): number {
  return Object.values(names).reduce((sum, list: readonly unknown[]) => sum + list.length, 0);
}

/** Why constraints of the authorities above forbid a name in a chain, which begins with its last certificate; undefined if they do not. */
export function constraintFault(chain: readonly Named[]): string | undefined {
  let comparisons = 0;
  for (const [at, { names }] of chain.entries()) {
    const above = chain.slice(at + 1).filter(({ constraints }) => constraints && isConstrained(constraints));
    if (!names || above.length === 0) continue;
    for (const { constraints } of above)
      if (constraints) comparisons += count(names) * (count(constraints.permitted) + count(constraints.excluded));
    if (comparisons > RUNTIME.nameComparisons)
      return `its names and the constraints above them take more than ${RUNTIME.nameComparisons} comparisons`;
    const fault = malformed(names) ?? above.map((each) => forbidden(names, each)).find((why) => why !== undefined);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function isConstrained({ permitted, excluded }: Constraints): boolean {
  return [permitted, excluded].some((side) => Object.values(side).some((list: readonly unknown[]) => list.length > 0));
}

/** What cannot be compared with a constraint must not pass one, as in Go. */
function malformed({ dns, emails, uris }: SubjectNames): string | undefined {
  const uri = uris.find((each) => domainOfUri(each) === undefined);
  if (uri !== undefined) return `its URI ${uri} cannot be compared with the name constraints above it`;
  const email = emails.find((each) => !parsedMailbox(each));
  if (email !== undefined) return `its address ${email} cannot be compared with the name constraints above it`;
  const name = dns.find((each) => !isDomain(each, false));
  return name === undefined ? undefined : `its name ${name} cannot be compared with the name constraints above it`;
}

/** Undefined: it has no host that constraints could name. */
function domainOfUri(uri: string): string | undefined {
  const host = uriHost(uri).toLowerCase();
  if (host === '' || host.startsWith('[')) return undefined;
  const domain = host.replace(/:\d*$/, '');
  return isIP(domain) !== 0 || domain.includes(':') || !isDomain(domain, false) ? undefined : domain;
}

function forbidden(names: SubjectNames, { constraints, subjectText }: Named): string | undefined {
  const { permitted, excluded } = constraints as Constraints;
  // Each name is read once, and not for each constraint: both lists may be long, and so may a name.
  const of = <V, R>(
    list: readonly V[],
    shown: (value: V) => string,
    read: (value: V) => R,
    by: (side: SubjectNames) => readonly ((name: R, permits: boolean) => boolean)[],
  ) => {
    const [allows, denies] = [by(permitted), by(excluded)];
    const found = list.find((value) => {
      const name = read(value);
      return (allows.length > 0 && !allows.some((is) => is(name, true))) || denies.some((is) => is(name, false));
    });
    return found === undefined
      ? undefined
      : `its name ${shown(found)} is not among those that ${subjectText} may issue`;
  };
  const same = <V>(value: V) => value;
  return (
    of(names.ips, addressText, same, ({ ips }) => ips.map(contains)) ??
    of(names.dns, same, lower, ({ dns }) => dns.map(isWithin)) ??
    of(names.uris, same, domainOfUri, ({ uris }) => uris.map(isWithin)) ??
    of(names.emails, same, parsedMailbox, ({ emails }) => emails.map(isMailboxOf))
  );
}

function contains(range: Buffer): (ip: Buffer) => boolean {
  const [network, mask] = [range.subarray(0, range.length / 2), range.subarray(range.length / 2)];
  return (ip) =>
    ip.length === mask.length &&
    ip.every((byte, at) => ((byte ^ (network[at] as number)) & (mask[at] as number)) === 0);
}

/** Whether a domain in lower case is one, or is below it. A wildcard that could stand for an excluded name is excluded too. */
function isWithin(constraint: string): (name: string | undefined, permits: boolean) => boolean {
  const limit = constraint.toLowerCase();
  const parent = limit.includes('.') ? limit.slice(limit.indexOf('.')) : '';
  return (name = '', permits) => {
    if (limit === '' || name === limit) return true;
    if (name.endsWith(limit.startsWith('.') ? limit : `.${limit}`)) return true;
    return (
      !permits &&
      name.startsWith('*') &&
      parent !== '' &&
      name.includes('.') &&
      name.slice(name.indexOf('.')) === parent
    );
  };
}

function isMailboxOf(constraint: string): (of: ReturnType<typeof parsedMailbox>, permits: boolean) => boolean {
  const exact = constraint.includes('@') ? parsedMailbox(constraint) : undefined;
  const within = isWithin(constraint);
  return ({ local, domain } = { local: '', domain: '' }, permits) =>
    exact ? exact.local === local && exact.domain === domain : within(domain, permits);
}

/** Kinds of names in subjectAltName and nameConstraints. */
const NAME = { email: 0x81, dns: 0x82, uri: 0x86, ip: 0x87 } as const;

/** Reads a subjectAltName. @throws Error if it is malformed */
export function subjectNamesIn(der: Buffer): SubjectNames {
  const names = { dns: [] as string[], emails: [] as string[], ips: [] as Buffer[], uris: [] as string[] };
  for (const { tag, value } of rowOf(der)) {
    if (tag === NAME.dns) names.dns.push(ascii(value));
    else if (tag === NAME.email) names.emails.push(ascii(value));
    else if (tag === NAME.ip) names.ips.push(ofLength(value, 4, 16));
    else if (tag === NAME.uri) {
      const uri = ascii(value);
      const host = uriHost(uri);
      if (host !== '' && !isDomain(host, false)) throw new Error('it has a URI whose host is malformed');
      names.uris.push(uri);
    }
  }
  return names;
}

/** Reads nameConstraints. `unhandled`: there are kinds of names that nobody here compares. @throws Error if they are malformed */
export function constraintsIn(der: Buffer): Constraints & { readonly unhandled: boolean } {
  const outer = new DerReader(der);
  const both = new DerReader(outer.read(TAG.sequence).value);
  const permitted = both.optional(0xa0)?.value;
  const excluded = both.optional(0xa1)?.value;
  if (!outer.empty || !both.empty || !(permitted?.length || excluded?.length))
    throw new Error('its name constraints are malformed');
  let unhandled = false;
  const namesIn = (list: Buffer | undefined) => {
    const names = { dns: [] as string[], emails: [] as string[], ips: [] as Buffer[], uris: [] as string[] };
    const row = new DerReader(list ?? Buffer.alloc(0));
    while (!row.empty) {
      const { tag, value } = new DerReader(row.read(TAG.sequence).value).read();
      if (tag === NAME.ip) names.ips.push(network(value));
      else if (tag === NAME.dns) names.dns.push(domain(ascii(value)));
      else if (tag === NAME.uri) names.uris.push(uriDomain(ascii(value)));
      else if (tag === NAME.email) names.emails.push(mailDomain(ascii(value)));
      else unhandled = true;
    }
    return names;
  };
  return { permitted: namesIn(permitted), excluded: namesIn(excluded), unhandled };
}

function domain(text: string): string {
  if (!isDomain(text, true)) throw new Error(`its name constraints have a malformed domain`);
  return text;
}

function uriDomain(text: string): string {
  if (isIP(text) !== 0) throw new Error('its name constraints have an address for URIs');
  return domain(text);
}

function mailDomain(text: string): string {
  if (!text.includes('@')) return domain(text);
  if (!parsedMailbox(text)) throw new Error('its name constraints have a malformed mailbox');
  return text;
}

/** An address and its mask. */
function network(value: Buffer): Buffer {
  const mask = ofLength(value, 8, 32).subarray(value.length / 2);
  const bits = [...mask].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  if (!/^1*0*$/.test(bits)) throw new Error('its name constraints have a malformed mask');
  return value;
}

function ofLength(value: Buffer, ...lengths: number[]): Buffer {
  if (!lengths.includes(value.length)) throw new Error(`it has an address of ${value.length} bytes`);
  return value;
}

/** An IA5String. */
function ascii(value: Buffer): string {
  if (value.some((byte) => byte > 0x7f)) throw new Error('it has a name that is not ASCII');
  return value.toString('latin1');
}
