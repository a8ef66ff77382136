import { constants, createPrivateKey, createPublicKey, type KeyObject, verify, X509Certificate } from 'node:crypto';
import { LruMap } from '../collections.ts';
import { RUNTIME } from '../defaults.ts';
import { bitsIn, DerReader, oidIn, shortest, TAG, unsigned } from './der.ts';
import { pemText } from './pem.ts';

/** The kinds of keys that verify a certificate. Others are kept as `other`. */
export type PublicKeyKind = 'rsa' | 'ec' | 'ed25519' | 'other';

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

/** Reads a SubjectPublicKeyInfo: the kind of key, and of an RSA key its bits and exponent. @throws Error if it is malformed */
export function publicKeyIn(der: Buffer): { kind: PublicKeyKind; bits: number; exponent: bigint } {
  const parts = new DerReader(der);
  const algorithm = new DerReader(parts.read(TAG.sequence).value);
  const id = oidIn(algorithm);
  const kind = KEYS[id] ?? 'other';
  const parameters = algorithm.empty ? undefined : algorithm.read();
  const key = bitsIn(parts.read(TAG.bits));
  if (kind === 'rsa' && parameters?.tag !== TAG.null) throw new Error('its RSA key has no parameters');
  if (kind === 'rsa') return { kind, ...rsaNumbers(key) };
  if (id === PSS) return { kind, ...pssNumbers(key) };
  if (kind === 'ec') {
    const curve = parameters?.tag === TAG.oid ? CURVES[parameters.value.toString('hex')] : undefined;
    if (curve === undefined) throw new Error('its key is on an unknown curve');
    if (key.length !== curve || key[0] !== 4) throw new Error('its key is malformed');
  }
  if (kind === 'ed25519' && (parameters || key.length !== 32)) throw new Error('its key is malformed');
  return { kind, bits: 0, exponent: 0n };
}

function rsaNumbers(key: Buffer): { bits: number; exponent: bigint } {
  const numbers = new DerReader(new DerReader(key).read(TAG.sequence).value);
  const modulus = shortest(numbers.read(TAG.integer).value);
  const exponent = unsigned(numbers.read(TAG.integer).value);
  const [high = 0, next = 0] = modulus;
  const bits =
    high === 0 ? 8 * (modulus.length - 1) - Math.clz32(next) + 24 : 8 * modulus.length - Math.clz32(high) + 24;
  if (bits <= 0 || exponent === 0n || exponent >= 2n ** 63n) throw new Error('its RSA key is malformed');
  return { bits, exponent };
}

/** A key for RSA-PSS alone verifies nothing here, but OpenSSL takes it in a handshake. Go does not read it, so it may be malformed. */
function pssNumbers(key: Buffer): { bits: number; exponent: bigint } {
  try {
    return rsaNumbers(key);
  } catch {
    return { bits: 0, exponent: 0n };
  }
}

/** How something is signed. */
export interface Signature {
  /** Of the key that can have made it. */
  readonly kind: 'rsa' | 'ec' | 'ed25519';
  readonly hash: string | null;
  /** Of RSA-PSS, in bytes. */
  readonly saltLength?: number;
}

const HASHES = ['sha256', 'sha384', 'sha512'] as const;
const ED25519 = '2b6570';
const PSS = '2a864886f70d01010a';
const MGF1 = '2a864886f70d010108';

/** By the algorithm's object identifier: its DER, in hex. What Go does not verify, such as SHA-1, MD5, DSA and Ed448, is not here. */
const ALGORITHMS: ReadonlyMap<string, Signature> = new Map<string, Signature>([
  ...HASHES.flatMap((hash, index): [string, Signature][] => [
    [`2a864886f70d01010${'bcd'[index]}`, { kind: 'rsa', hash }],
    [`2a8648ce3d04030${index + 2}`, { kind: 'ec', hash }],
  ]),
  [ED25519, { kind: 'ed25519', hash: null }],
]);

/** Of RSA-PSS, whose salt is as long as the hash. */
const PSS_HASHES: ReadonlyMap<string, Signature> = new Map(
  HASHES.map((hash, index) => [`60864801650304020${index + 1}`, { kind: 'rsa', hash, saltLength: 32 + 16 * index }]),
);

/** Reads an AlgorithmIdentifier's content; undefined for an algorithm that is not accepted. @throws Error if it is malformed */
export function signatureIn(algorithm: Buffer): Signature | undefined {
  const parts = new DerReader(algorithm);
  const id = parts.read(TAG.oid).value.toString('hex');
  const parameters = parts.empty ? undefined : parts.read();
  if (id === PSS) return parameters && pssIn(parameters.whole);
  return id === ED25519 && parameters ? undefined : ALGORITHMS.get(id);
}

/** RSASSA-PSS-params (RFC 4055 section 3.1), where both hashes are the same. */
function pssIn(parameters: Buffer): Signature | undefined {
  try {
    const fields = new DerReader(new DerReader(parameters).read(TAG.sequence).value);
    const hash = hashIn(fields.read(0xa0).value);
    const mask = new DerReader(new DerReader(fields.read(0xa1).value).read(TAG.sequence).value);
    const isMgf1 = mask.read(TAG.oid).value.toString('hex') === MGF1;
    const maskHash = hashIn(mask.read(TAG.sequence).whole);
    const salt = new DerReader(fields.read(0xa2).value).read(TAG.integer).value;
    const found = PSS_HASHES.get(hash);
    return isMgf1 && maskHash === hash && salt.equals(Buffer.of(found?.saltLength ?? 0)) ? found : undefined;
  } catch {
    return undefined;
  }
}

function hashIn(algorithm: Buffer): string {
  return new DerReader(new DerReader(algorithm).read(TAG.sequence).value).read(TAG.oid).value.toString('hex');
}

/** A certificate's public key: SubjectPublicKeyInfo, DER. */
interface Signer {
  readonly publicKey: Buffer;
}

/** Keys as OpenSSL has them, some KB each. To parse one takes longer than to verify with it. */
const keys = new LruMap<Signer, KeyObject>(RUNTIME.publicKeys);

function keyOf(signer: Signer): KeyObject | undefined {
  const known = keys.get(signer);
  if (known) return known;
  try {
    const key = createPublicKey({ key: signer.publicKey, format: 'der', type: 'spki' });
    keys.set(signer, key);
    return key;
  } catch {
    // OpenSSL or Deno cannot use it, such as a point that is not on its curve.
    return undefined;
  }
}

/** Whether a key of the signature's kind signed something. */
export function isSigned({ hash, saltLength }: Signature, data: Buffer, signer: Signer, value: Buffer): boolean {
  const key = keyOf(signer);
  const pss = saltLength === undefined ? {} : { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength };
  try {
    return key !== undefined && verify(hash, data, { key, ...pss }, value);
  } catch {
    // OpenSSL or Deno cannot read the signature.
    return false;
  }
}

/** Reads a private key (PEM) as OpenSSL gets it. @throws Error that says why it cannot be used */
export function privateKeyIn(pem: Buffer | string): KeyObject {
  const text = pemText(pem);
  if (/^-----BEGIN ENCRYPTED|^Proc-Type: 4,ENCRYPTED/m.test(text))
    throw new Error('the key in it is encrypted: remove its passphrase');
  try {
    return createPrivateKey(text);
  } catch (cause) {
    throw new Error('there is no usable private key (PEM) in it', { cause });
  }
}

/**
 * Whether a private key (PEM) is a certificate's. Node and Deno take a key of another certificate, and then every handshake fails.
 * @throws Error that says why it is no private key
 */
export function isKeyOf(key: Buffer | string, { raw }: { readonly raw: Buffer }): boolean {
  return new X509Certificate(raw).checkPrivateKey(privateKeyIn(key));
}
