import { X509Certificate } from 'node:crypto';
import type { CertificateAuthority, Hosts } from '@isthmus/certificates';
import type { ShownCertificate } from '../certificates/chain.ts';

export const DAY = 86_400_000;

export interface Issue {
  /** SPIFFE IDs, or other URIs. */
  readonly uris?: readonly string[];
  readonly uses?: readonly ('client' | 'server')[];
  readonly validMs?: number;
  readonly notBeforeMs?: number;
  /** What the peer sends behind its certificate. */
  readonly sent?: readonly CertificateAuthority[];
}

/** A client's certificate of an authority, as a peer shows it. */
export async function shownBy(
  authority: CertificateAuthority,
  commonName: string,
  { uris, uses = ['client'], validMs = DAY, notBeforeMs, sent = [] }: Issue = {},
): Promise<ShownCertificate> {
  const hosts: Hosts | undefined = uris?.map((value) => ({ type: 'url', value }));
  const { cert } = await authority.issue({ commonName, validMs, notBeforeMs, uses, ...(hosts && { hosts }) });
  return { leaf: new X509Certificate(cert), sent: sent.map((each) => new X509Certificate(each.cert)) };
}
