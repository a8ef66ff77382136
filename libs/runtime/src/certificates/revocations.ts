import type { Certificate } from './certificate.ts';
import { bitsIn, booleanIn, DerReader, serialText, TAG, timeIn } from './der.ts';
import { signatureIn } from './keys.ts';
import { pemBlocks } from './pem.ts';

/** A certificate revocation list (RFC 5280 section 5.1) whose signature nobody has verified yet. */
export interface RevocationList {
  /** Its issuer's name: DER, in hex. */
  readonly issuer: string;
  /** Of the certificates that it revokes, as `Certificate.serial`. */
  readonly serials: ReadonlySet<string>;
  /** When a newer one should be there, in milliseconds since the epoch. Unset: it does not say. */
  readonly nextUpdate: number | undefined;
  signedBy(authority: Certificate): boolean;
}

/** Reads one list in DER, or one or more in PEM. @throws Error that says what is wrong */
export function readRevocationLists(content: Buffer): RevocationList[] {
  if (content[0] === TAG.sequence) return [readList(content)];
  const blocks = pemBlocks(content, 'X509 CRL');
  if (blocks.length === 0) throw new Error('there is no certificate revocation list (PEM or DER) in it');
  return blocks.map(({ bytes }, index) => {
    // What it revokes is not known.
    if (!bytes) throw new Error(`its revocation list ${index + 1} of ${blocks.length} is damaged, or has no end`);
    return readList(bytes);
  });
}

function readList(der: Buffer): RevocationList {
  const { tbs, algorithm, signature, issuer, nextUpdate, revoked, extensions } = partsOf(der);
  const signedWith = signatureIn(algorithm);
  if (!signedWith) throw new Error('its revocation list is signed with an algorithm that is not allowed');
  if (extensions && hasCritical(new DerReader(extensions).read(TAG.sequence).value))
    throw new Error('its revocation list is partial or indirect, which is not supported: use a complete one');
  return {
    issuer: issuer.toString('hex'),
    serials: serialsIn(revoked ?? Buffer.alloc(0)),
    nextUpdate,
    signedBy: (authority) => authority.signed(tbs, signedWith, signature),
  };
}

function partsOf(der: Buffer) {
  try {
    const parts = new DerReader(new DerReader(der).read(TAG.sequence).value);
    const tbs = parts.read(TAG.sequence);
    const algorithm = parts.read(TAG.sequence).value;
    const signature = bitsIn(parts.read(TAG.bits));
    const fields = new DerReader(tbs.value);
    // Its version, and the algorithm once more.
    fields.optional(TAG.integer);
    fields.read(TAG.sequence);
    const issuer = fields.read(TAG.sequence).value;
    // When it was made.
    fields.read();
    const nextUpdate = fields.at(TAG.utcTime) || fields.at(TAG.time) ? timeIn(fields) : undefined;
    const revoked = fields.optional(TAG.sequence)?.value;
    return {
      ...{ tbs: tbs.whole, algorithm, signature, issuer, nextUpdate, revoked },
      extensions: fields.optional(0xa0)?.value,
    };
  } catch (cause) {
    throw new Error('its revocation list is malformed', { cause });
  }
}

function hasCritical(extensions: Buffer): boolean {
  const row = new DerReader(extensions);
  while (!row.empty) {
    const fields = new DerReader(row.read(TAG.sequence).value);
    fields.read(TAG.oid);
    if (booleanIn(fields)) return true;
  }
  return false;
}

/** A list that cannot be read to its end must not count as a shorter one. */
function serialsIn(revoked: Buffer): Set<string> {
  const serials = new Set<string>();
  const row = new DerReader(revoked);
  try {
    while (!row.empty) {
      const fields = new DerReader(row.read(TAG.sequence).value);
      const serial = serialText(fields.read(TAG.integer).value);
      // When it was revoked.
      fields.read();
      const extensions = fields.optional(TAG.sequence);
      if (extensions && hasCritical(extensions.value)) throw new Error('the entry has a critical extension');
      serials.add(serial);
    }
  } catch (cause) {
    throw new Error(`its revocation list cannot be read behind entry ${serials.size}`, { cause });
  }
  return serials;
}
