import { createHash, createPublicKey, type KeyObject } from 'node:crypto';
import { isIP } from 'node:net';
import { LruMap } from '../collections.ts';
import { DerReader } from '../der.ts';
import { type Constraints, isDomain, parsedMailbox, uriHost } from './names.ts';
import { isSigned, type Signature, signatureIn } from './signature.ts';

/** Names of a certificate's subjectAltName. */
export interface SubjectNames {
  readonly dns: readonly string[];
  readonly emails: readonly string[];
  /** 4 or 16 bytes each. */
  readonly ips: readonly Buffer[];
  readonly uris: readonly string[];
}

/** The kinds of keys that verify a certificate. Others are kept as `other`. */
export type PublicKeyKind = 'rsa' | 'ec' | 'ed25519' | 'other';

/** Tags of DER. */
const TAG = {
  ...{ boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, null: 0x05, oid: 0x06, utf8: 0x0c },
  ...{ numeric: 0x12, printable: 0x13, t61: 0x14, ia5: 0x16, utcTime: 0x17, time: 0x18, bmp: 0x1e },
  ...{ sequence: 0x30, set: 0x31 },
} as const;

/** Object identifiers' DER, in hex. */
const EXTENSION = {
  subjectKeyId: '551d0e',
  keyUsage: '551d0f',
  subjectAltName: '551d11',
  basicConstraints: '551d13',
  nameConstraints: '551d1e',
  crlDistribution: '551d1f',
  policies: '551d20',
  policyMappings: '551d21',
  authorityKeyId: '551d23',
  policyConstraints: '551d24',
  purposes: '551d25',
  inhibitAnyPolicy: '551d36',
  authorityInfo: '2b06010505070101',
} as const;

const KEYS: Readonly<Record<string, PublicKeyKind>> = {
  '2a864886f70d010101': 'rsa',
  '2a8648ce3d0201': 'ec',
  '2b6570': 'ed25519',
};

/** Bytes of a point on P-224, P-256, P-384 and P-521, not compressed, by the curve's object identifier. */
const CURVES: Readonly<Record<string, number>> = {
  '2b81040021': 57,
  '2a8648ce3d030107': 65,
  '2b81040022': 97,
  '2b81040023': 133,
};

const COMMON_NAME = '550403';

/** What people call a name's fields. */
const FIELDS: Readonly<Record<string, string>> = {
  [COMMON_NAME]: 'CN',
  '550406': 'C',
  '550407': 'L',
  '550408': 'ST',
  '55040a': 'O',
  '55040b': 'OU',
  '550405': 'serialNumber',
  '2a864886f70d010901': 'emailAddress',
  '0992268993f22c640119': 'DC',
  '0992268993f22c640101': 'UID',
};

/** keyCertSign in the first byte of keyUsage (RFC 5280 section 4.2.1.3). */
const CERT_SIGN = 0x04;

/**
 * A certificate (RFC 5280 section 4.1), read from its DER by Go's rules (crypto/x509, parser.go): what Go does not parse is refused here
 * too. Node and Deno turn names into texts, each in its own way, in which a name can look like two, and neither tells all that decides
 * whether a certificate may issue others.
 */
export class Certificate {
  readonly raw: Buffer;
  readonly version: number;
  /** In upper-case hex without leading zeros. */
  readonly serial: string;
  /** The names' DER, in hex: equal for the same name. */
  readonly issuer: string;
  readonly subject: string;
  /** In milliseconds since the epoch. */
  readonly validFrom: number;
  readonly validTo: number;
  readonly keyKind: PublicKeyKind;
  /** Of an RSA key. */
  readonly bits: number = 0;
  readonly exponent: bigint = 0n;
  readonly signature: Signature | undefined;
  /** basicConstraints: unset without the extension. */
  readonly isAuthority: boolean | undefined;
  /** How many authorities may stand between it and the last certificate. Unset: any number. */
  readonly pathLength: number | undefined;
  /** Whether keyUsage lets it sign certificates, as far as it says. */
  readonly maySign: boolean = true;
  /** Which key it has, and which one signed it, as authorities name keys: hex. Empty: it does not say. */
  readonly keyId: string = '';
  readonly issuerKeyId: string = '';
  /** extendedKeyUsage: object identifiers' DER, in hex. Empty: no restriction. */
  readonly purposes: readonly string[] = [];
  /** subjectAltName: unset without the extension. */
  readonly names: SubjectNames | undefined;
  /** nameConstraints: unset without the extension. */
  readonly constraints: Constraints | undefined;
  /** Whether it demands policies of what is below it (policyConstraints, requireExplicitPolicy). */
  readonly demandsPolicies: boolean = false;
  /** Critical extensions that nobody here knows: object identifiers' DER, in hex. */
  readonly unknownCritical: readonly string[] = [];

  /** Where parts of it are in `raw`. Kept as numbers: there may be thousands of tenants' authorities. */
  readonly #body: Part;
  readonly #publicKey: Part;
  readonly #signatureValue: Part;
  /** subjectAltName's DER, in hex: two certificates of one subject and key that differ in it are not the same authority. */
  readonly #altNames: string | undefined;
  #id: string | undefined;
  /** Of issuers that were tried: whether its signature is theirs. Weak, as certificates that strangers sent come and go. */
  #signers: WeakMap<Certificate, boolean> | undefined;

  /** @throws Error that says what is malformed */
  constructor(raw: Buffer) {
    this.raw = raw;
    const outer = new DerReader(raw);
    const parts = new DerReader(outer.read(TAG.sequence).value);
    if (!outer.empty) throw new Error('something stands behind it');
    const body = parts.read(TAG.sequence);
    const algorithm = parts.read(TAG.sequence);
    const signature = bitsIn(parts.read(TAG.bits));
    const fields = new DerReader(body.value);
    this.#body = partOf(raw, body.whole);
    this.#signatureValue = partOf(raw, signature);
    this.version = versionIn(fields);
    this.serial = serialIn(fields);
    const inner = fields.read(TAG.sequence);
    if (!inner.value.equals(algorithm.value)) throw new Error('it names two signature algorithms');
    this.signature = signatureIn(inner.value);
    const issuer = fields.read(TAG.sequence);
    checkName(issuer.value);
    this.issuer = issuer.value.toString('hex');
    const validity = new DerReader(fields.read(TAG.sequence).value);
    this.validFrom = timeIn(validity);
    this.validTo = timeIn(validity);
    const subject = fields.read(TAG.sequence);
    checkName(subject.value);
    this.subject = subject.value.equals(issuer.value) ? this.issuer : subject.value.toString('hex');
    const publicKey = fields.read(TAG.sequence);
    this.#publicKey = partOf(raw, publicKey.whole);
    const key = keyIn(publicKey.value);
    this.keyKind = key.kind;
    this.bits = key.bits;
    this.exponent = key.exponent;
    if (this.version < 2) return;
    fields.optional(0x81);
    fields.optional(0x82);
    const list = this.version === 3 ? fields.optional(0xa3) : undefined;
    if (!list) return;
    const unknown: string[] = [];
    for (const [id, { critical, value }] of extensionsIn(list.value)) {
      if (id === EXTENSION.keyUsage) {
        const bits = bitsIn(new DerReader(value).read(TAG.bits));
        // Without any bit, Go takes it as if it were absent.
        this.maySign = bits.every((byte) => byte === 0) || ((bits[0] ?? 0) & CERT_SIGN) !== 0;
      } else if (id === EXTENSION.basicConstraints) {
        const constraints = new DerReader(new DerReader(value).read(TAG.sequence).value);
        this.isAuthority = booleanIn(constraints);
        const length = constraints.optional(TAG.integer);
        if (length) this.pathLength = Number(unsigned(length.value));
      } else if (id === EXTENSION.subjectAltName) {
        this.#altNames = value.toString('hex');
        this.names = subjectNamesIn(value);
        if (Object.values(this.names).every((each) => each.length === 0) && critical) unknown.push(id);
      } else if (id === EXTENSION.nameConstraints) {
        const { unhandled, ...constraints } = constraintsIn(value);
        this.constraints = constraints;
        if (unhandled && critical) unknown.push(id);
      } else if (id === EXTENSION.authorityKeyId || id === EXTENSION.subjectKeyId || id === EXTENSION.authorityInfo) {
        if (critical) throw new Error(`its extension ${id} must not be critical`);
        if (id === EXTENSION.authorityKeyId) this.issuerKeyId = keyIdIn(value);
        else if (id === EXTENSION.subjectKeyId)
          this.keyId = new DerReader(value).read(TAG.octets).value.toString('hex');
        else rowOf(value, TAG.sequence);
      } else if (id === EXTENSION.purposes) {
        this.purposes = rowOf(value, TAG.oid).map((each) => each.value.toString('hex'));
      } else if (id === EXTENSION.policies) {
        const policies = rowOf(value, TAG.sequence).map((each) => oidIn(new DerReader(each.value)));
        if (new Set(policies).size !== policies.length) throw new Error('it has one policy twice');
      } else if (id === EXTENSION.policyConstraints) {
        this.demandsPolicies =
          new DerReader(new DerReader(value).read(TAG.sequence).value).optional(0x80) !== undefined;
      } else if (id === EXTENSION.crlDistribution || id === EXTENSION.policyMappings) {
        rowOf(value, TAG.sequence);
      } else if (id === EXTENSION.inhibitAnyPolicy) {
        new DerReader(value).read(TAG.integer);
      } else if (critical) unknown.push(id);
    }
    this.unknownCritical = unknown;
  }

  /** An authority is its name and key: a certificate that was renewed with the same key is of the same authority. */
  get authorityId(): string {
    this.#id ??= createHash('sha256').update(this.subject).update('\0').update(this.publicKey).digest('base64');
    return this.#id;
  }

  /** SubjectPublicKeyInfo: DER. */
  get publicKey(): Buffer {
    return this.#part(this.#publicKey);
  }

  get commonNames(): string[] {
    const found = attributesIn(this.subject).filter(({ type }) => type === COMMON_NAME);
    // Another encoding is a name too, which nobody can have.
    return found.map(({ tag, value }) => (READABLE.has(tag) ? value.toString('utf8') : ''));
  }

  /** For people: `CN=a,O=b, serial 01AB`. */
  get title(): string {
    const serial = this.serial.padStart(this.serial.length + (this.serial.length % 2), '0');
    return `${this.name ?? 'no subject'}, serial ${serial}`;
  }

  /** For people: its subject, or else its first name. A valid one may have neither. */
  get name(): string | undefined {
    const { dns = [], uris = [], emails = [] } = this.names ?? {};
    const [first] = [
      ...dns.map((each) => `DNS:${each}`),
      ...uris.map((each) => `URI:${each}`),
      ...emails.map((each) => `email:${each}`),
    ];
    return nameText(this.subject) || first;
  }

  /** For people: `CN=a,O=b`. */
  get subjectText(): string {
    return nameText(this.subject) || 'an authority without a name';
  }

  get issuerText(): string {
    return nameText(this.issuer) || 'an authority without a name';
  }

  /** Whether both are certificates of one subject, key and names: a chain has each once. */
  isSameAs(other: Certificate): boolean | undefined {
    if (this.subject !== other.subject || !this.publicKey.equals(other.publicKey)) return false;
    // As Go: if one of them has other names, the search ends there.
    if ((this.#altNames === undefined) !== (other.#altNames === undefined)) return undefined;
    return this.#altNames === other.#altNames;
  }

  /** Whether an issuer's key signed it. Each pair is verified once. */
  isSignedBy(issuer: Certificate): boolean {
    const known = this.#signers?.get(issuer);
    if (known !== undefined) return known;
    const { signature } = this;
    const right =
      signature !== undefined && issuer.signed(this.#part(this.#body), signature, this.#part(this.#signatureValue));
    this.#signers ??= new WeakMap();
    this.#signers.set(issuer, right);
    return right;
  }

  #part([from, to]: Part): Buffer {
    return this.raw.subarray(from, to);
  }

  /** Whether its key signed something. */
  signed(data: Buffer, signature: Signature, value: Buffer): boolean {
    const key = signature.kind === this.keyKind ? keyOf(this) : undefined;
    return key !== undefined && isSigned(signature, data, key, value);
  }
}

type Part = readonly [from: number, to: number];

function partOf(whole: Buffer, part: Buffer): Part {
  const from = part.byteOffset - whole.byteOffset;
  return [from, from + part.length];
}

/** How many keys stay parsed, some KB each. To parse one takes OpenSSL longer than to verify with it. */
const MOST_KEYS = 512;

const keys = new LruMap<Certificate, KeyObject>(MOST_KEYS);

function keyOf(certificate: Certificate): KeyObject | undefined {
  const known = keys.get(certificate);
  if (known) return known;
  try {
    const key = createPublicKey({ key: certificate.publicKey, format: 'der', type: 'spki' });
    keys.set(certificate, key);
    return key;
  } catch {
    // OpenSSL or Deno cannot use it, such as a point that is not on its curve.
    return undefined;
  }
}

/** How many certificates stay read, and the longest of them, in bytes: 4 MiB and what was read of it, which is as much. */
const MOST_KNOWN = 1024;
const LONGEST_KNOWN = 4096;

const known = new LruMap<string, Certificate>(MOST_KNOWN);

/**
 * Reads a certificate, once while it is known: agents, callers and hubs show the same ones again and again. Nothing here depends on who is
 * trusted, so that it holds for ever.
 * @throws Error that says what is malformed
 */
export function certificateOf(raw: Buffer): Certificate {
  if (raw.length > LONGEST_KNOWN) return new Certificate(raw);
  const hash = createHash('sha256').update(raw).digest('base64');
  const before = known.get(hash);
  if (before) return before;
  const certificate = new Certificate(raw);
  known.set(hash, certificate);
  return certificate;
}

function versionIn(fields: DerReader): number {
  const explicit = fields.optional(0xa0);
  const version = explicit ? Number(unsigned(new DerReader(explicit.value).read(TAG.integer).value)) + 1 : 1;
  if (version > 3) throw new Error('it has an unknown version');
  return version;
}

function serialIn(fields: DerReader): string {
  return shortest(fields.read(TAG.integer).value)
    .toString('hex')
    .replace(/^0+(?=.)/, '')
    .toUpperCase();
}

/** An integer that is not negative, in its only encoding. */
function unsigned(value: Buffer): bigint {
  return BigInt(`0x${shortest(value).toString('hex')}`);
}

function shortest(value: Buffer): Buffer {
  const [high = 0x80, next = 0x80] = value;
  if (high >= 0x80 || (high === 0 && value.length > 1 && next < 0x80)) throw new Error('it has a malformed integer');
  return value;
}

/** The bytes of a BIT STRING, of which the first counts the bits that are not used at its end. */
function bitsIn({ value }: { readonly value: Buffer }): Buffer {
  const [unused = 8] = value;
  const last = value.at(-1) ?? 0;
  const bad = unused > 7 || (value.length === 1 && unused > 0) || (last & ((1 << unused) - 1)) !== 0;
  if (bad) throw new Error('it has malformed bits');
  return value.subarray(1);
}

/** A BOOLEAN that may be absent, which means false. */
function booleanIn(reader: DerReader): boolean {
  const value = reader.optional(TAG.boolean)?.value;
  if (!value) return false;
  if (value.length !== 1 || (value[0] !== 0 && value[0] !== 0xff)) throw new Error('it has a malformed boolean');
  return value[0] === 0xff;
}

/** The object identifier that comes next, as hex. */
function oidIn(reader: DerReader): string {
  const { value } = reader.read(TAG.oid);
  // A part of it ends with a byte below 0x80, and does not begin with 0x80.
  const well = value.length > 0 && (value.at(-1) ?? 0x80) < 0x80 && !startsPadded(value);
  if (!well) throw new Error('it has a malformed object identifier');
  return value.toString('hex');
}

function startsPadded(value: Buffer): boolean {
  return value.some((byte, at) => byte === 0x80 && (at === 0 || (value[at - 1] as number) < 0x80));
}

/** The elements of a SEQUENCE, of one tag if it is given. */
function rowOf(der: Buffer, tag?: number) {
  const row = new DerReader(new DerReader(der).read(TAG.sequence).value);
  const found = [];
  while (!row.empty) {
    const element = row.read(tag);
    if (tag === TAG.oid) oidIn(new DerReader(element.whole));
    found.push(element);
  }
  return found;
}

function extensionsIn(list: Buffer): Map<string, { readonly critical: boolean; readonly value: Buffer }> {
  const found = new Map<string, { critical: boolean; value: Buffer }>();
  for (const each of rowOf(list, TAG.sequence)) {
    const fields = new DerReader(each.value);
    const id = oidIn(fields);
    if (found.has(id)) throw new Error(`it has the extension ${id} twice`);
    found.set(id, { critical: booleanIn(fields), value: fields.read(TAG.octets).value });
  }
  return found;
}

function keyIdIn(value: Buffer): string {
  return new DerReader(new DerReader(value).read(TAG.sequence).value).optional(0x80)?.value.toString('hex') ?? '';
}

/** Kinds of names in subjectAltName and nameConstraints. */
const NAME = { email: 0x81, dns: 0x82, uri: 0x86, ip: 0x87 } as const;

function subjectNamesIn(der: Buffer): SubjectNames {
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

function constraintsIn(der: Buffer): Constraints & { readonly unhandled: boolean } {
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

function keyIn(der: Buffer): { kind: PublicKeyKind; bits: number; exponent: bigint } {
  const parts = new DerReader(der);
  const algorithm = new DerReader(parts.read(TAG.sequence).value);
  const kind = KEYS[oidIn(algorithm)] ?? 'other';
  const parameters = algorithm.empty ? undefined : algorithm.read();
  const key = bitsIn(parts.read(TAG.bits));
  const none = { kind, bits: 0, exponent: 0n };
  if (kind === 'rsa') {
    if (parameters?.tag !== TAG.null) throw new Error('its RSA key has no parameters');
    const numbers = new DerReader(new DerReader(key).read(TAG.sequence).value);
    const modulus = shortest(numbers.read(TAG.integer).value);
    const exponent = unsigned(numbers.read(TAG.integer).value);
    const [high = 0, next = 0] = modulus;
    const bits =
      high === 0 ? 8 * (modulus.length - 1) - Math.clz32(next) + 24 : 8 * modulus.length - Math.clz32(high) + 24;
    if (bits <= 0 || exponent === 0n || exponent >= 2n ** 63n) throw new Error('its RSA key is malformed');
    return { kind, bits, exponent };
  }
  if (kind === 'ec') {
    const curve = parameters?.tag === TAG.oid ? CURVES[parameters.value.toString('hex')] : undefined;
    if (curve === undefined) throw new Error('its key is on an unknown curve');
    if (key.length !== curve || key[0] !== 4) throw new Error('its key is malformed');
  }
  if (kind === 'ed25519' && (parameters || key.length !== 32)) throw new Error('its key is malformed');
  return none;
}

interface Attribute {
  readonly type: string;
  readonly tag: number;
  readonly value: Buffer;
}

function attributesIn(name: string): Attribute[] {
  return attributes(Buffer.from(name, 'hex'));
}

function attributes(name: Buffer): Attribute[] {
  const found: Attribute[] = [];
  const sets = new DerReader(name);
  while (!sets.empty) {
    const set = new DerReader(sets.read(TAG.set).value);
    while (!set.empty) {
      const attribute = new DerReader(set.read(TAG.sequence).value);
      const type = oidIn(attribute);
      const { tag, value } = attribute.read();
      found.push({ type, tag, value });
    }
  }
  return found;
}

/** Encodings that can be read as UTF-8. */
const READABLE = new Set<number>([TAG.utf8, TAG.printable, TAG.ia5]);

function checkName(name: Buffer): void {
  for (const { tag, value } of attributes(name)) if (!isText(tag, value)) throw new Error('it has a malformed name');
}

function isText(tag: number, value: Buffer): boolean {
  const text = value.toString('latin1');
  if (tag === TAG.t61) return true;
  if (tag === TAG.printable) return /^[a-zA-Z0-9'()*+,\-./ :=?&]*$/.test(text);
  if (tag === TAG.utf8) return Buffer.from(value.toString('utf8')).equals(value);
  if (tag === TAG.ia5) return !value.some((byte) => byte > 0x7f);
  if (tag === TAG.numeric) return /^[0-9 ]*$/.test(text);
  if (tag !== TAG.bmp || value.length % 2 !== 0) return false;
  return !/[\ufffe\uffff\ufdd0-\ufdef\ud800-\udfff]/.test(Buffer.from(value).swap16().toString('utf16le'));
}

function nameText(name: string): string {
  const fields = attributesIn(name).map(({ type, tag, value }) => {
    const text = tag === TAG.bmp ? Buffer.from(value).swap16().toString('utf16le') : value.toString('utf8');
    return `${FIELDS[type] ?? type}=${text.replaceAll(/[\\,]/g, '\\$&')}`;
  });
  // What is not shown as it is could end a line of the log.
  return fields.join(',').replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, (found) => `\\u{${found.codePointAt(0)?.toString(16)}}`);
}

const UTC_TIME = /^(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)?(Z|[+-]\d{4})$/;
const GENERALIZED_TIME = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(Z|[+-]\d{4})$/;

/** A UTCTime of two-digit years (1950 to 2049), or a GeneralizedTime (RFC 5280 section 4.1.2.5). As Go, it takes other zones than Z. */
function timeIn(reader: DerReader): number {
  const { tag, value } = reader.read();
  const format = tag === TAG.utcTime ? UTC_TIME : tag === TAG.time ? GENERALIZED_TIME : undefined;
  const found = format?.exec(value.toString('latin1'));
  if (!found) throw new Error('it has a malformed date');
  const [year = 0, ...rest] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const [month = 0, day = 0, hour = 0, minute = 0, second = 0] = rest;
  const zone = found[7] === 'Z' ? 0 : Number(found[7]);
  const date = new Date(0);
  date.setUTCFullYear(tag === TAG.time ? year : year + (year < 50 ? 2000 : 1900), month - 1, day);
  date.setUTCHours(hour, minute, second);
  // What overflows, such as 30 February, is no date.
  const read = [
    date.getUTCMonth() + 1,
    date.getUTCDate(),
    date.getUTCHours(),
    date.getUTCMinutes(),
    date.getUTCSeconds(),
  ];
  if (read.join() !== rest.join()) throw new Error('it has a malformed date');
  return date.getTime() - (Math.trunc(zone / 100) * 60 + (zone % 100)) * 60_000;
}
