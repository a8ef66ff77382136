import type { KubeClient } from './client.ts';
import { messageOf } from './connection.ts';
import { type Lease, type LeaseCall, type LeaseList, leasePath, leasesPath, SeenLeases } from './lease.ts';
import { type Periodic, periodic } from './periodic.ts';
import { KubeStatusError } from './status.ts';

export interface LeaseCollectionObserver {
  listed(call: LeaseCall): void;
  deleted(call: LeaseCall): void;
  /** Called when an expired lease was deleted. */
  culled(): void;
}

export interface LeaseCollectionOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  readonly selector: string;
  readonly observer: LeaseCollectionObserver;
  readonly warn: (message: string) => void;
  readonly intervalMs: number;
}

/**
 * Deletes leases that were not renewed for as long as they last, of servers that ended without deleting them. Every server does this, as in
 * upstream.
 */
export function leaseCollection(options: LeaseCollectionOptions): Periodic {
  const { intervalMs, warn } = options;
  const seen = new SeenLeases(() => performance.now());
  return periodic(
    async (signal) => {
      const leases = await list(options, signal);
      seen.list(leases, false);
      for (const lease of leases) if (!seen.isLive(lease.metadata.name)) await remove(lease, options, signal);
      return intervalMs;
    },
    (error) => {
      warn(`expired leases could not be collected: ${messageOf(error)}`);
      return intervalMs;
    },
  );
}

async function list(options: LeaseCollectionOptions, signal: AbortSignal): Promise<readonly Lease[]> {
  const { client, namespace, selector, observer } = options;
  const call = { method: 'GET', path: leasesPath(namespace), query: { labelSelector: selector }, signal } as const;
  const { items } = await timed(
    () => client.request<LeaseList>(call),
    (outcome) => observer.listed(outcome),
  );
  return items ?? [];
}

async function remove({ metadata }: Lease, options: LeaseCollectionOptions, signal: AbortSignal): Promise<void> {
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
    const overtaken = error instanceof KubeStatusError && (error.status === 404 || error.status === 409);
    if (!overtaken && !signal.aborted) warn(`expired lease ${metadata.name} could not be deleted: ${messageOf(error)}`);
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
