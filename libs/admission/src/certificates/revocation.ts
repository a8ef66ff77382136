import { type Certificate, derElements, derFirst, signatureIn } from '@isthmus/runtime';
import type { Signed } from './chain.ts';
import type { TrustSet } from './trust-set.ts';

/** A certificate revocation list (RFC 5280 section 5.1) whose signature nobody has verified yet. */
export interface RevocationList {
  /** Its issuer's name: DER, in hex. */
  readonly issuer: string;
  /** Of the certificates that it revokes, in upper-case hex without leading zeros. */
  readonly serials: ReadonlySet<string>;
  /** When a newer one should be there, in milliseconds since the epoch. Unset: it does not say. */
  readonly nextUpdate: number | undefined;
  signedBy(authority: Certificate): boolean;
}

const TAG = {
  ...{ boolean: 0x01, integer: 0x02, bits: 0x03, oid: 0x06, sequence: 0x30 },
  ...{ utcTime: 0x17, generalizedTime: 0x18, extensions: 0xa0 },
};

const PEM = /-----BEGIN X509 CRL-----([A-Za-z0-9+/=\s]+)-----END X509 CRL-----/g;

/** Reads one list in DER, or one or more in PEM. @throws Error that says what is wrong */
export function readRevocationLists(content: Buffer): RevocationList[] {
  if (content[0] === TAG.sequence) return [readList(content)];
  const blocks = [...content.toString('latin1').matchAll(PEM)];
  if (blocks.length === 0) throw new Error('there is no certificate revocation list (PEM or DER) in it');
  return blocks.map(([, base64 = '']) => readList(Buffer.from(base64, 'base64')));
}

function readList(der: Buffer): RevocationList {
  const [tbs, algorithm, signature] = derElements(derFirst(der, TAG.sequence));
  const parts = derElements(tbs?.value ?? Buffer.alloc(0));
  if (parts[0]?.tag === TAG.integer) parts.shift();
  const [, issuer, , ...rest] = parts;
  if (!tbs || !issuer || signature?.tag !== TAG.bits) throw new Error('its revocation list is malformed');
  const signedWith = algorithm && signatureIn(algorithm.value);
  if (!signedWith) throw new Error('its revocation list is signed with an algorithm that is not allowed');
  const extensions = rest.find(({ tag }) => tag === TAG.extensions)?.value;
  if (extensions && derElements(derFirst(extensions, TAG.sequence)).some(({ value }) => isCritical(value)))
    throw new Error('its revocation list is partial or indirect, which is not supported: use a complete one');
  return {
    issuer: issuer.value.toString('hex'),
    serials: serialsIn(rest.find(({ tag }) => tag === TAG.sequence)?.value ?? Buffer.alloc(0)),
    nextUpdate: timeOf(rest[0]),
    // The first byte of a BIT STRING counts the bits that are not used.
    signedBy: (authority) => authority.signed(tbs.whole, signedWith, signature.value.subarray(1)),
  };
}

function isCritical(extension: Buffer): boolean {
  return derFirst(extension, TAG.boolean)[0] === 0xff;
}

/** A list that cannot be read to its end must not count as a shorter one. */
function serialsIn(revoked: Buffer): Set<string> {
  const serials = new Set<string>();
  let read = 0;
  for (const { value, whole } of derElements(revoked)) {
    const [serial, , extensions] = derElements(value);
    if (serial?.tag !== TAG.integer) break;
    if (extensions && derElements(extensions.value).some((each) => isCritical(each.value))) break;
    serials.add(
      serial.value
        .toString('hex')
        .replace(/^0+(?=.)/, '')
        .toUpperCase(),
    );
    read += whole.length;
  }
  if (read !== revoked.length) throw new Error(`its revocation list cannot be read behind entry ${serials.size}`);
  return serials;
}

/** UTCTime has two digits of the year, from 1950 (RFC 5280 section 4.1.2.5.1). */
function timeOf(element: { readonly tag: number; readonly value: Buffer } | undefined): number | undefined {
  if (element?.tag !== TAG.utcTime && element?.tag !== TAG.generalizedTime) return undefined;
  const text = element.value.toString('latin1');
  const year =
    element.tag === TAG.utcTime
      ? `${Number(text.slice(0, 2)) < 50 ? '20' : '19'}${text.slice(0, 2)}`
      : text.slice(0, 4);
  const [month, day, hour, minute, second] = text.slice(text.length - 11, -1).match(/../g) ?? [];
  return Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
}

/** What the lists of a CA bundle revoke. */
export class Revocations {
  readonly #byAuthority = new Map<string, Set<string>>();
  /** When the first of the lists should have been replaced, in milliseconds since the epoch. */
  readonly nextUpdate: number;

  /** @throws Error if no authority of the bundle signed one of the lists */
  constructor(lists: readonly RevocationList[], trust: TrustSet) {
    for (const list of lists) {
      const signers = trust.all.filter((each) => each.subject === list.issuer && list.signedBy(each));
      if (signers.length === 0)
        throw new Error("no authority in ca signed its revocation list: put the issuer's certificate into ca");
      for (const { authorityId: id } of signers) {
        const known = this.#byAuthority.get(id) ?? new Set();
        this.#byAuthority.set(id, known);
        for (const serial of list.serials) known.add(serial);
      }
    }
    this.nextUpdate = Math.min(...lists.map(({ nextUpdate = Number.POSITIVE_INFINITY }) => nextUpdate));
  }

  /** The first of these certificates that is revoked. */
  find(signed: readonly Signed[]): Signed | undefined {
    return signed.find(({ authority, serial }) => this.#byAuthority.get(authority)?.has(serial));
  }
}
