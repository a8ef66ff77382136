import type { Tenant } from '@isthmus/admission';
import type { LinkClient } from '@isthmus/transport';
import { getOrPut } from '@isthmus/tunnel';

type Link = Pick<LinkClient, 'sendPolicy' | 'closed'>;

/** Tells agents the dial rules of their tenants: when their links open, and when the rules change. */
export class Policies {
  readonly #links = new Map<string, Set<Link>>();
  /** The rules that a tenant's agents were told last, as text. */
  readonly #told = new Map<string, string>();

  add(tenant: Tenant, link: Link): void {
    this.renew(tenant);
    const links = getOrPut(this.#links, tenant.name, () => new Set());
    links.add(link);
    this.#told.set(tenant.name, textOf(tenant));
    link.sendPolicy(tenant.file.dial ?? {});
    void link.closed.then(() => {
      links.delete(link);
      if (links.size > 0 || this.#links.get(tenant.name) !== links) return;
      this.#links.delete(tenant.name);
      this.#told.delete(tenant.name);
    });
  }

  /** Call when a tenant's file has changed. */
  renew(tenant: Tenant | undefined): void {
    const links = tenant && this.#links.get(tenant.name);
    if (!links || this.#told.get(tenant.name) === textOf(tenant)) return;
    this.#told.set(tenant.name, textOf(tenant));
    for (const link of links) link.sendPolicy(tenant.file.dial ?? {});
  }
}

function textOf({ file }: Tenant): string {
  return JSON.stringify(file.dial ?? {});
}
