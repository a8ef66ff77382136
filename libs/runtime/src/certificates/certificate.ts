import { createHash } from 'node:crypto';
import { LruMap } from '../collections.ts';
import { RUNTIME } from '../defaults.ts';
import { printable } from '../text.ts';
import { bitsIn, booleanIn, DerReader, oidIn, rowOf, serialText, shortest, TAG, timeIn, unsigned } from './der.ts';
import { isSigned, type PublicKeyKind, publicKeyIn, type Signature, signatureIn } from './keys.ts';
import { type Constraints, constraintsIn, type SubjectNames, subjectNamesIn } from './names.ts';

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
  /** Of an RSA key, also of one for RSA-PSS alone, whose kind is `other`. */
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
  #name: string | undefined;
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
    this.serial = serialText(shortest(fields.read(TAG.integer).value));
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
    const key = publicKeyIn(publicKey.value);
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
        const key = id === EXTENSION.authorityKeyId && new DerReader(new DerReader(value).read(TAG.sequence).value);
        if (key) this.issuerKeyId = key.optional(0x80)?.value.toString('hex') ?? '';
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
    const found = attributesIn(Buffer.from(this.subject, 'hex')).filter(({ type }) => type === COMMON_NAME);
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
    this.#name ??= nameText(this.subject) || firstName(this.names);
    return this.#name || undefined;
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
    return signature.kind === this.keyKind && isSigned(signature, data, this, value);
  }
}

function firstName({ dns, uris, emails }: Partial<SubjectNames> = {}): string {
  if (dns?.[0] !== undefined) return `DNS:${dns[0]}`;
  if (uris?.[0] !== undefined) return `URI:${uris[0]}`;
  return emails?.[0] === undefined ? '' : `email:${emails[0]}`;
}

type Part = readonly [from: number, to: number];

function partOf(whole: Buffer, part: Buffer): Part {
  const from = part.byteOffset - whole.byteOffset;
  return [from, from + part.length];
}

const known = new LruMap<string, Certificate>(RUNTIME.certificates);

/**
 * Reads a certificate, once while it is known: agents, callers and hubs show the same ones again and again. Nothing here depends on who is
 * trusted, so that it holds for ever.
 * @throws Error that says what is malformed
 */
export function certificateOf(raw: Buffer): Certificate {
  if (raw.length > RUNTIME.certificateBytes) return new Certificate(raw);
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

interface Attribute {
  readonly type: string;
  readonly tag: number;
  readonly value: Buffer;
}

/** @param name DER */
function attributesIn(name: Buffer): Attribute[] {
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
  for (const { tag, value } of attributesIn(name)) if (!isText(tag, value)) throw new Error('it has a malformed name');
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
  const fields = attributesIn(Buffer.from(name, 'hex')).map(({ type, tag, value }) => {
    const text = tag === TAG.bmp ? Buffer.from(value).swap16().toString('utf16le') : value.toString('utf8');
    return `${FIELDS[type] ?? type}=${text.replaceAll(/[\\,]/g, '\\$&')}`;
  });
  // What is not shown as it is could end a line of the log.
  return printable(fields.join(','));
}

/** Whether a certificate should have been renewed. Those of a few days are always near their end. */
export function renewalIsDue(validUntil: number, validFrom = Number.NEGATIVE_INFINITY, now = Date.now()): boolean {
  return validUntil - now < Math.min(RUNTIME.renewalMs, RUNTIME.renewalPart * (validUntil - validFrom));
}

/** Why a certificate's key proves nothing here; undefined if it may. */
export function faultOfKey({ bits, exponent }: Certificate): string | undefined {
  if (bits === 0) return undefined;
  if (bits < RUNTIME.rsaLeastBits || bits > RUNTIME.rsaMostBits)
    return `its RSA key has ${bits} bits: ${RUNTIME.rsaLeastBits} to ${RUNTIME.rsaMostBits} are allowed`;
  return exponent >= 2n ** BigInt(RUNTIME.rsaExponentBits)
    ? `its RSA key has an exponent of more than ${RUNTIME.rsaExponentBits} bits`
    : undefined;
}
