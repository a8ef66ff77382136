import type { Tenant } from '@isthmus/admission';
import { LruMap } from '@isthmus/runtime';
import { type TlsChoice, tlsChoice } from '@isthmus/transport';

/** How many tenants' certificates are kept ready to be shown: 60 KB each. The one used longest ago is dropped, and made again when a peer asks for it. */
const MOST_READY = 512;

interface Ready {
  /** What it was made from. */
  readonly of: Tenant['credentials'];
  readonly choice: TlsChoice;
}

/** Tenants' server certificates, each made ready when a peer first asks for it. */
export class TlsChoices {
  readonly #policy: Parameters<typeof tlsChoice>[1];
  readonly #ready = new LruMap<string, Ready>(MOST_READY);

  constructor(policy: Parameters<typeof tlsChoice>[1]) {
    this.#policy = policy;
  }

  /** Undefined if the tenant has no certificate. */
  of({ name, credentials }: Tenant): TlsChoice | undefined {
    const ready = this.#ready.get(name);
    if (ready?.of === credentials) return ready.choice;
    this.#ready.delete(name);
    const [cert, key] = [credentials.text('server.certificate'), credentials.text('server.key')];
    if (cert === undefined || key === undefined) return undefined;
    const choice = tlsChoice({ cert, key }, this.#policy);
    this.#ready.set(name, { of: credentials, choice });
    return choice;
  }

  /** Forgets tenants that have changed, or are gone. */
  forget(tenants: Iterable<string>): void {
    for (const tenant of tenants) this.#ready.delete(tenant);
  }
}
