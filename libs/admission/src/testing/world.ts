import type { CertificateAuthority, Hosts } from '@isthmus/certificates';
import { type Certificate, CertificatePool, type Presented } from '@isthmus/runtime';

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
): Promise<Presented> {
  const hosts: Hosts | undefined = uris?.map((value) => ({ type: 'url', value }));
  const { cert } = await authority.issue({ commonName, validMs, notBeforeMs, uses, ...(hosts && { hosts }) });
  return { leaf: read(cert), sent: sent.map((each) => read(each.cert)) };
}

export function read(pem: string): Certificate {
  return CertificatePool.of(pem).all[0] as Certificate;
}
