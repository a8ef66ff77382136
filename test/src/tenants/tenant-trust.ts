import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { TenantFile } from '@isthmus/admission';
import { Authority, type Identity, type IdentityOptions } from '@isthmus/certificates/testing';

/** The trust domain of the plane's SPIFFE IDs. */
export const TRUST_DOMAIN = 'plane.example';

/** What kubeadm calls the CA of each cluster that it makes: names do not tell tenants' CAs apart. */
const CA_NAME = 'kubernetes';

/** A certificate's URI SAN, and that it is a client's. */
export function spiffe(path: string, trustDomain = TRUST_DOMAIN): IdentityOptions {
  return { hosts: [{ type: 'url', value: `spiffe://${trustDomain}/${path}` }], uses: ['client'] };
}

/** The credentials of one tenant, as its own cluster makes them. */
export class TenantTrust {
  readonly name: string;
  /** Selects the tenant by SNI. */
  readonly serverName: string;
  /** The cluster's CA: it signs agents, and what the plane shows to the tenant. */
  readonly cluster: Authority;
  /** Signs callers alone, so that no agent is a caller. */
  readonly callers: Authority;
  /** What the plane shows to this tenant's agents and callers. */
  readonly server: Identity;

  private constructor(name: string, serverName: string, cluster: Authority, callers: Authority, server: Identity) {
    this.name = name;
    this.serverName = serverName;
    this.cluster = cluster;
    this.callers = callers;
    this.server = server;
  }

  /** @param dir where its files are written; the tenant's own */
  static async create(dir: string, name: string, validMs?: number): Promise<TenantTrust> {
    const serverName = `${name}.${TRUST_DOMAIN}`;
    const cluster = await Authority.create(dir, name, validMs, CA_NAME);
    const callers = await Authority.create(dir, `${name}-callers`, validMs, CA_NAME);
    const server = await cluster.server({ hosts: [{ type: 'dns', value: serverName }] });
    return new TenantTrust(name, serverName, cluster, callers, server);
  }

  /** @param id its common name, which is the agent's id */
  agent(id: string, options?: IdentityOptions): Promise<Identity> {
    return this.cluster.client(id, options);
  }

  caller(name = 'kube-apiserver', options?: IdentityOptions): Promise<Identity> {
    return this.callers.client(name, options);
  }

  /** What most tenants' files say: agents and callers have certificates of its CAs. */
  get file(): TenantFile {
    const { cert: certificate, key } = this.server;
    return {
      tenant: this.name,
      server: { serverNames: [this.serverName], certificate, key },
      agents: [{ certificates: { ca: this.cluster.cert } }],
      callers: [{ certificates: { ca: this.callers.cert } }],
    };
  }
}

/** A certificate's serial number in hex. */
export function serialOf({ cert }: Identity): string {
  return new X509Certificate(readFileSync(cert)).serialNumber;
}
