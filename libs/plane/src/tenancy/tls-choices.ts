import type { Tenant } from '@isthmus/admission';
import { LruMap } from '@isthmus/runtime';
import { type TlsChoice, tlsChoice } from '@isthmus/transport';

/** How many tenants' certificates are kept ready, of 60 KB each. The one used longest ago is dropped, and made again when a peer asks for it. */
const MOST_READY_CERTIFICATES = 512;

/** A certificate with its chain, and its key. PEM. */
export interface CertificateTexts {
  readonly cert: string;
  readonly key: string;
}

/** Returns the tenant's certificate, or undefined if it has none. */
export function certificateOf({ credentials }: Tenant): CertificateTexts | undefined {
  const [cert, key] = [credentials.text('server.certificate'), credentials.text('server.key')];
  return cert === undefined || key === undefined ? undefined : { cert, key };
}

interface Ready {
  /** The credentials that it was made from. */
  readonly of: Tenant['credentials'];
  readonly choice: TlsChoice;
}

/** Tenants' server certificates, each made ready when a peer first asks for it. */
export class TlsChoices {
  readonly #policy: Parameters<typeof tlsChoice>[1];
  readonly #ready = new LruMap<string, Ready>(MOST_READY_CERTIFICATES);

  constructor(policy: Parameters<typeof tlsChoice>[1]) {
    this.#policy = policy;
  }

  /** Undefined if the tenant has no certificate. */
  of(tenant: Tenant): TlsChoice | undefined {
    const { name, credentials } = tenant;
    const ready = this.#ready.get(name);
    if (ready?.of === credentials) return ready.choice;
    this.#ready.delete(name);
    const texts = certificateOf(tenant);
    if (!texts) return undefined;
    const choice = tlsChoice(texts, this.#policy);
    this.#ready.set(name, { of: credentials, choice });
    return choice;
  }

  /** Forgets tenants that have changed, or are gone. */
  forget(tenants: Iterable<string>): void {
    for (const tenant of tenants) this.#ready.delete(tenant);
  }
}
