import { setTimeout as sleep } from 'node:timers/promises';
import { type KubeClient, KubeStatusError } from './client.ts';

/** The relevant part of a coordination.k8s.io/v1 Lease. Updates keep unknown fields. */
export interface Lease {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly resourceVersion?: string;
  };
  readonly spec?: {
    readonly holderIdentity?: string;
    readonly leaseDurationSeconds?: number;
    readonly acquireTime?: string;
    readonly renewTime?: string;
  };
}

/** The result of one call about leases, for metrics. A call without an answer is not reported, as in upstream. */
export interface LeaseCall {
  /** The HTTP status of the answer. */
  readonly status: number;
  /** The API's reason for a failure (`Forbidden`, ...); empty for a success. */
  readonly reason: string;
  readonly ms: number;
}

export function leasesPath(namespace: string): string {
  return `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
}

export function leasePath(namespace: string, name: string): string {
  return `${leasesPath(namespace)}/${encodeURIComponent(name)}`;
}

/** Returns a lease; undefined if there is none. */
export function findLease(
  client: KubeClient,
  namespace: string,
  name: string,
  signal: AbortSignal,
): Promise<Lease | undefined> {
  const path = leasePath(namespace, name);
  return client.request<Lease>({ method: 'GET', path, signal }).catch(unlessNotFound);
}

/** Writes a lease, which must be as it was read if it `exists`. @returns what the API server has made of it */
export function writeLease(client: KubeClient, lease: Lease, exists: boolean, signal: AbortSignal): Promise<Lease> {
  const { namespace = '', name } = lease.metadata;
  const body = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', ...lease };
  return exists
    ? client.request<Lease>({ method: 'PUT', path: leasePath(namespace, name), body, signal })
    : client.request<Lease>({ method: 'POST', path: leasesPath(namespace), body, signal });
}

export function unlessNotFound(error: unknown): undefined {
  if (error instanceof KubeStatusError && error.status === 404) return undefined;
  throw error;
}

/**
 * Which holders still renew their leases, by what this process sees and its own steady clock. Times in leases are those of their holders'
 * clocks, which may be wrong, as may be this machine's: they are only compared with each other. (Upstream takes all clocks for right.)
 */
export class SeenLeases {
  readonly #seen = new Map<string, { readonly renewed: string; readonly at: number; readonly durationMs: number }>();
  readonly #now: () => number;

  /** @param now milliseconds of a steady clock */
  constructor(now: () => number) {
    this.#now = now;
  }

  /**
   * Takes over all leases that there are.
   * @param ranked whether one that is new here counts as renewed as long ago as it was before the latest: else it counts as renewed now
   */
  list(leases: readonly Lease[], ranked: boolean): void {
    const names = new Set(leases.map(({ metadata }) => metadata.name));
    for (const name of this.#seen.keys()) if (!names.has(name)) this.#seen.delete(name);
    const times = leases.map((lease) => Date.parse(renewedAt(lease)) || 0);
    const latest = times.reduce((most, time) => Math.max(most, time), 0);
    for (const [index, lease] of leases.entries()) this.see(lease, ranked ? latest - (times[index] ?? 0) : 0);
  }

  /** @param agoMs how long ago it was renewed, if it is new here */
  see(lease: Lease, agoMs = 0): void {
    const { name } = lease.metadata;
    const renewed = renewedAt(lease);
    const before = this.#seen.get(name);
    const at = before?.renewed === renewed ? before.at : this.#now() - (before ? 0 : agoMs);
    this.#seen.set(name, { renewed, at, durationMs: (lease.spec?.leaseDurationSeconds ?? 0) * 1000 });
  }

  delete(name: string): void {
    this.#seen.delete(name);
  }

  /** Whether its holder was seen to renew it within its duration. */
  isLive(name: string): boolean {
    const seen = this.#seen.get(name);
    return seen !== undefined && seen.renewed !== '' && this.#now() - seen.at < seen.durationMs;
  }

  /** How many are live. */
  get live(): number {
    return [...this.#seen.keys()].filter((name) => this.isLive(name)).length;
  }
}

/** When its holder says that it renewed it; empty if it does not say. */
function renewedAt({ spec }: Lease): string {
  return spec?.renewTime ?? spec?.acquireTime ?? '';
}

/** Returns a MicroTime. The API requires exactly six digits after the second. */
export function microTime(now: number): string {
  return new Date(now).toISOString().replace('Z', '000Z');
}

/** Returns a selector for exactly these labels. */
export function labelSelector(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .sort()
    .join(',');
}

/**
 * Runs `work` at once, and again after as many milliseconds as it returned, until stopped. Rounds never overlap. If `work` rejects,
 * only its round ends: `failed` then returns the delay.
 * @returns what interrupts the work and waits for its end
 */
export function periodic(
  work: (signal: AbortSignal) => Promise<number>,
  failed: (error: unknown) => number,
): AsyncDisposable {
  const controller = new AbortController();
  const { signal } = controller;
  const round = () => work(signal).catch((error) => (signal.aborted ? 0 : failed(error)));
  const run = async () => {
    while (!signal.aborted) {
      const delay = await round();
      // An aborted sleep rejects. That is the end, not a failure.
      await sleep(delay, undefined, { signal }).catch(() => {});
    }
  };
  const done = run();
  return {
    [Symbol.asyncDispose]() {
      controller.abort();
      return done;
    },
  };
}
