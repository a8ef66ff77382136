import { Backoff } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { adviceOnRights, type KubeClient, KubeStatusError } from './client.ts';
import { KUBE } from './defaults.ts';
import {
  findLease,
  type Lease,
  type LeaseCall,
  labelSelector,
  leasePath,
  leasesPath,
  microTime,
  periodic,
  SeenLeases,
  unlessNotFound,
  writeLease,
} from './lease.ts';

export interface LeaseHolderOptions {
  readonly client: KubeClient;
  /** The lease is called `konnectivity-proxy-server-SERVERID`, as in upstream, so that agents count both alike. */
  readonly serverId: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly observer: LeaseCollectionObserver;
  readonly warn: (message: string) => void;
}

/**
 * Announces this server through a lease (`--enable-lease-controller`), and collects leases of servers that are gone.
 * @returns what stops that, and deletes the lease, so that agents stop looking for this server
 */
export function leaseHolder(options: LeaseHolderOptions): AsyncDisposable {
  const { client, namespace, labels, warn } = options;
  const name = `konnectivity-proxy-server-${options.serverId}`;
  const renewed = (lease: Lease | undefined): Lease => ({
    ...lease,
    metadata: { ...lease?.metadata, name, namespace, labels },
    spec: {
      holderIdentity: options.serverId,
      ...lease?.spec,
      leaseDurationSeconds: KUBE.leaseSeconds,
      renewTime: microTime(Date.now()),
    },
  });
  /** Only this process writes it, so that its last known version is usually the current one. */
  let latest: Lease | undefined;
  /** A concurrent write by someone else is read and overwritten. */
  const renew = async (signal: AbortSignal) => {
    for (let conflicts = 0; ; conflicts++) {
      const base = latest ?? (await findLease(client, namespace, name, signal));
      try {
        latest = await writeLease(client, renewed(base), base !== undefined, signal);
        return;
      } catch (error) {
        latest = undefined;
        if (!overtaken(error) || conflicts >= KUBE.leaseConflicts) throw error;
      }
    }
  };

  const rights = `get, list, watch, create, update and delete on leases in the namespace ${namespace}`;
  const backoff = new Backoff(KUBE.leaseRetryFirstMs, KUBE.leaseRetryCapMs);
  const renewal = periodic(
    async (signal) => {
      await renew(signal);
      backoff.reset();
      return KUBE.leaseRenewMs * (1 + Math.random() * KUBE.leaseRenewJitter);
    },
    (error) => {
      warn(`lease ${namespace}/${name} could not be renewed: ${inWords(error)}${adviceOnRights(error, rights)}`);
      return backoff.next();
    },
  );
  const collection = leaseCollection(options);

  const close = async () => {
    await Promise.all([renewal, collection].map((each) => each[Symbol.asyncDispose]()));
    const deleted = client.request({ method: 'DELETE', path: leasePath(namespace, name) }).catch(unlessNotFound);
    await deleted.catch((error) => warn(`lease ${namespace}/${name} could not be deleted: ${inWords(error)}`));
  };
  let closing: Promise<void> | undefined;
  return {
    [Symbol.asyncDispose]() {
      closing ??= close();
      return closing;
    },
  };
}

export interface LeaseCollectionObserver {
  listed(call: LeaseCall): void;
  deleted(call: LeaseCall): void;
  /** Called when an expired lease was deleted. */
  culled(): void;
}

/**
 * Deletes leases that were not renewed for as long as they last, of servers that ended without deleting them. Every server does this, as in
 * upstream.
 */
function leaseCollection(options: LeaseHolderOptions): AsyncDisposable {
  const seen = new SeenLeases(() => performance.now());
  return periodic(
    async (signal) => {
      const leases = await list(options, signal);
      seen.list(leases, false);
      for (const lease of leases) if (!seen.isLive(lease.metadata.name)) await remove(lease, options, signal);
      return KUBE.leaseRenewMs;
    },
    (error) => {
      options.warn(`expired leases could not be collected: ${inWords(error)}`);
      return KUBE.leaseRenewMs;
    },
  );
}

async function list(options: LeaseHolderOptions, signal: AbortSignal): Promise<readonly Lease[]> {
  const { client, namespace, labels, observer } = options;
  const query = { labelSelector: labelSelector(labels) };
  const call = { method: 'GET', path: leasesPath(namespace), query, signal } as const;
  const { items } = await timed(
    () => client.request<{ readonly items?: readonly Lease[] }>(call),
    (outcome) => observer.listed(outcome),
  );
  return items ?? [];
}

async function remove({ metadata }: Lease, options: LeaseHolderOptions, signal: AbortSignal): Promise<void> {
  const { client, namespace, observer, warn } = options;
  // Delete only the version seen as expired, because its holder may have renewed it since.
  const preconditions = { resourceVersion: metadata.resourceVersion };
  const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions };
  const path = leasePath(namespace, metadata.name);
  try {
    await timed(
      () => client.request({ method: 'DELETE', path, body, signal }),
      (outcome) => observer.deleted(outcome),
    );
    observer.culled();
  } catch (error) {
    if (!overtaken(error) && !signal.aborted)
      warn(`expired lease ${metadata.name} could not be deleted: ${inWords(error)}`);
  }
}

/** Reports what the API server answered and how long that took. Reports nothing if it did not answer. */
export async function timed<T>(call: () => Promise<T>, report: (outcome: LeaseCall) => void): Promise<T> {
  const start = performance.now();
  try {
    const result = await call();
    report({ status: 200, reason: '', ms: performance.now() - start });
    return result;
  } catch (error) {
    if (error instanceof KubeStatusError) {
      report({ status: error.status, reason: error.reason, ms: performance.now() - start });
    }
    throw error;
  }
}

/** The lease changed since it was read: it has another version, is gone, or was just created. */
function overtaken(error: unknown): boolean {
  return error instanceof KubeStatusError && (error.status === 409 || error.status === 404);
}
