import { constants, type KeyObject, verify } from 'node:crypto';
import { DerReader } from '../der.ts';

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
  const id = parts.read(0x06).value.toString('hex');
  const parameters = parts.empty ? undefined : parts.read();
  if (id === PSS) return parameters && pssIn(parameters.whole);
  return id === ED25519 && parameters ? undefined : ALGORITHMS.get(id);
}

/** RSASSA-PSS-params (RFC 4055 section 3.1), where both hashes are the same. */
function pssIn(parameters: Buffer): Signature | undefined {
  try {
    const fields = new DerReader(new DerReader(parameters).read(0x30).value);
    const hash = hashIn(fields.read(0xa0).value);
    const mask = new DerReader(new DerReader(fields.read(0xa1).value).read(0x30).value);
    const isMgf1 = mask.read(0x06).value.toString('hex') === MGF1;
    const maskHash = hashIn(mask.read(0x30).whole);
    const salt = new DerReader(fields.read(0xa2).value).read(0x02).value;
    const found = PSS_HASHES.get(hash);
    return isMgf1 && maskHash === hash && salt.equals(Buffer.of(found?.saltLength ?? 0)) ? found : undefined;
  } catch {
    return undefined;
  }
}

function hashIn(algorithm: Buffer): string {
  return new DerReader(new DerReader(algorithm).read(0x30).value).read(0x06).value.toString('hex');
}

/** Whether a key, of the signature's kind, signed something. */
export function isSigned({ hash, saltLength }: Signature, data: Buffer, key: KeyObject, value: Buffer): boolean {
  const pss = saltLength === undefined ? {} : { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength };
  try {
    return verify(hash, data, { key, ...pss }, value);
  } catch {
    // OpenSSL or Deno cannot read the signature.
    return false;
  }
}
