import { Backoff } from '@isthmus/runtime';
import type { KubeClient } from './client.ts';
import { messageOf } from './connection.ts';
import { type Lease, labelSelector, leasePath, leasesPath, microTime } from './lease.ts';
import { type LeaseCollectionObserver, leaseCollection } from './lease-collection.ts';
import { periodic } from './periodic.ts';
import { adviceOnRights, KubeStatusError } from './status.ts';

export interface LeaseHolderOptions {
  readonly client: KubeClient;
  /** The lease is called `konnectivity-proxy-server-SERVERID`, as in upstream, so that agents count both alike. */
  readonly serverId: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly observer: LeaseCollectionObserver;
  readonly warn: (message: string) => void;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
  /** Interval between renewals, and between collections, in milliseconds. Default 15 s, as in upstream. */
  readonly intervalMs?: number;
}

export interface LeaseHolder extends AsyncDisposable {
  /** Stops renewing and deletes the lease, so that agents stop looking for this server. */
  close(): Promise<void>;
}

const DURATION_SECONDS = 30;
const INTERVAL_MS = 15_000;
/** Spreads the renewals of servers that started together. */
const RENEWAL_JITTER = 0.04;
const RETRY_FIRST_MS = 200;
const RETRY_CAP_MS = 7000;
const MAX_CONFLICTS = 5;

/** Announces this server through a lease (`--enable-lease-controller`), and collects leases of servers that are gone. */
export function leaseHolder(options: LeaseHolderOptions): LeaseHolder {
  const { client, namespace, labels, observer, warn, now = Date.now, intervalMs = INTERVAL_MS } = options;
  const name = `konnectivity-proxy-server-${options.serverId}`;
  const own = new OwnLease(client, namespace, name, (lease) => ({
    ...lease,
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { ...lease?.metadata, name, namespace, labels },
    spec: {
      holderIdentity: options.serverId,
      ...lease?.spec,
      leaseDurationSeconds: DURATION_SECONDS,
      renewTime: microTime(now()),
    },
  }));

  const rights = `get, list, watch, create, update and delete on leases in the namespace ${namespace}`;
  const backoff = new Backoff(RETRY_FIRST_MS, RETRY_CAP_MS);
  const renewal = periodic(
    async (signal) => {
      await own.renew(signal);
      backoff.reset();
      return intervalMs * (1 + Math.random() * RENEWAL_JITTER);
    },
    (error) => {
      warn(`lease ${namespace}/${name} could not be renewed: ${messageOf(error)}${adviceOnRights(error, rights)}`);
      return backoff.next();
    },
  );
  const selector = labelSelector(labels);
  const collection = leaseCollection({ client, namespace, selector, observer, warn, intervalMs });

  const close = async () => {
    await Promise.all([renewal.stop(), collection.stop()]);
    await own.delete().catch((error) => warn(`lease ${namespace}/${name} could not be deleted: ${messageOf(error)}`));
  };
  let closing: Promise<void> | undefined;
  const closeOnce = () => {
    closing ??= close();
    return closing;
  };
  return { close: closeOnce, [Symbol.asyncDispose]: closeOnce };
}

/** One lease that only this process writes, so that its last known version is usually the current one. */
class OwnLease {
  readonly #client: KubeClient;
  readonly #namespace: string;
  readonly #name: string;
  readonly #renewed: (lease: Lease | undefined) => Lease;
  #latest: Lease | undefined;

  constructor(client: KubeClient, namespace: string, name: string, renewed: (lease: Lease | undefined) => Lease) {
    this.#client = client;
    this.#namespace = namespace;
    this.#name = name;
    this.#renewed = renewed;
  }

  /** Updates the lease, or creates it if there is none. A concurrent write by someone else is read and overwritten. */
  async renew(signal: AbortSignal): Promise<void> {
    for (let conflicts = 0; ; conflicts++) {
      const base = this.#latest ?? (await this.#find(signal));
      try {
        this.#latest = await (base ? this.#update(base, signal) : this.#create(signal));
        return;
      } catch (error) {
        this.#latest = undefined;
        if (!overtaken(error) || conflicts >= MAX_CONFLICTS) throw error;
      }
    }
  }

  async delete(): Promise<void> {
    const path = leasePath(this.#namespace, this.#name);
    await this.#client.request({ method: 'DELETE', path }).catch(unlessNotFound);
  }

  #find(signal: AbortSignal): Promise<Lease | undefined> {
    const path = leasePath(this.#namespace, this.#name);
    return this.#client.request<Lease>({ method: 'GET', path, signal }).catch(unlessNotFound);
  }

  #create(signal: AbortSignal): Promise<Lease> {
    const path = leasesPath(this.#namespace);
    return this.#client.request<Lease>({ method: 'POST', path, body: this.#renewed(undefined), signal });
  }

  #update(base: Lease, signal: AbortSignal): Promise<Lease> {
    const path = leasePath(this.#namespace, this.#name);
    return this.#client.request<Lease>({ method: 'PUT', path, body: this.#renewed(base), signal });
  }
}

/** The lease changed since it was read: it has another version, is gone, or was just created. */
function overtaken(error: unknown): boolean {
  return error instanceof KubeStatusError && (error.status === 409 || error.status === 404);
}

function unlessNotFound(error: unknown): undefined {
  if (error instanceof KubeStatusError && error.status === 404) return undefined;
  throw error;
}
