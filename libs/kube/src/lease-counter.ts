import { Backoff } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { adviceOnRights, type KubeClient, KubeStatusError } from './client.ts';
import { KUBE } from './defaults.ts';
import { type Lease, type LeaseCall, type LeaseList, leasesPath, periodic, SeenLeases } from './lease.ts';
import { timed } from './lease-holder.ts';

export interface LeaseCountObserver {
  listed(call: LeaseCall): void;
  watched(call: Omit<LeaseCall, 'ms'>): void;
}

export interface LeaseCounterOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  /** `--lease-label-selector` */
  readonly selector: string;
  readonly observer: LeaseCountObserver;
  readonly warn: (message: string) => void;
  /** Milliseconds of a steady clock. */
  readonly now?: () => number;
}

interface WatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  readonly object: Lease & { readonly code?: number; readonly reason?: string; readonly message?: string };
}

/** Counts servers by their leases (`--count-server-leases`): lists them, then watches, and starts over when the watch ends. */
export class LeaseCounter implements AsyncDisposable {
  readonly #options: LeaseCounterOptions;
  readonly #leases: SeenLeases;
  readonly #backoff = new Backoff(KUBE.watchRetryFirstMs, KUBE.watchRetryCapMs);
  readonly #following: AsyncDisposable;
  /** Whether the leases match those of the API server. */
  #current = false;
  #lastCount = 1;

  constructor(options: LeaseCounterOptions) {
    this.#options = options;
    this.#leases = new SeenLeases(options.now ?? (() => performance.now()));
    this.#following = periodic(
      (signal) => this.#follow(signal),
      (error) => this.#lost(error),
    );
  }

  /** Returns how many servers were seen to renew their leases in time: at least 1, and the last good count while the API server is down. */
  count(): number {
    if (!this.#current) return this.#lastCount;
    this.#lastCount = Math.max(1, this.#leases.live);
    return this.#lastCount;
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.#following[Symbol.asyncDispose]();
  }

  /** Lists once, then watches until the watch ends. */
  async #follow(signal: AbortSignal): Promise<number> {
    const { client, namespace, selector, observer } = this.#options;
    const call = { method: 'GET', path: leasesPath(namespace), query: { labelSelector: selector }, signal } as const;
    const { items = [], metadata } = await timed(
      () => client.request<LeaseList>(call),
      (outcome) => observer.listed(outcome),
    );
    this.#leases.list(items, true);
    this.#current = true;
    const query = { ...call.query, resourceVersion: metadata?.resourceVersion ?? '', allowWatchBookmarks: 'true' };
    await this.#watch({ ...call, query }, signal);
    this.#backoff.reset();
    // The watch ended normally. The pause protects a server that ends every watch at once.
    return KUBE.watchRetryFirstMs;
  }

  async #watch(call: Parameters<KubeClient['watch']>[0], signal: AbortSignal): Promise<void> {
    const { client, observer } = this.#options;
    const onOpen = () => observer.watched({ status: 200, reason: '' });
    try {
      const events = client.watch<WatchEvent>(call, {
        signal,
        lengthMs: KUBE.watchMs,
        idleMs: KUBE.watchIdleMs,
        onOpen,
      });
      for await (const event of events) this.#apply(event);
    } catch (error) {
      if (error instanceof KubeStatusError) observer.watched({ status: error.status, reason: error.reason });
      throw error;
    }
  }

  #apply({ type, object }: WatchEvent): void {
    switch (type) {
      case 'ADDED':
      case 'MODIFIED':
        this.#leases.see(object);
        return;
      case 'DELETED':
        this.#leases.delete(object.metadata.name);
        return;
      case 'ERROR':
        // Usually 410: the listed version is too old to watch from.
        throw new Error(`the watch ended: ${object.code ?? ''} ${object.reason ?? ''} ${object.message ?? ''}`);
    }
  }

  #lost(error: unknown): number {
    this.count();
    this.#current = false;
    const advice = adviceOnRights(error, `get, list and watch on leases in the namespace ${this.#options.namespace}`);
    this.#options.warn(
      `cannot watch server leases, still counting ${this.#lastCount} server(s): ${inWords(error)}${advice}`,
    );
    return this.#backoff.next();
  }
}
