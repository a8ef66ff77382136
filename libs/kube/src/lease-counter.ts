import { inWords } from '@isthmus/tunnel';
import { adviceOnRights, type KubeClient, KubeStatusError } from './client.ts';
import { KUBE } from './defaults.ts';
import { type Lease, type LeaseCall, leasesPath, SeenLeases } from './lease.ts';
import { timed } from './lease-holder.ts';
import { compareVersions, followObjects } from './objects.ts';

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

/** Counts servers by their leases (`--count-server-leases`). */
export class LeaseCounter implements AsyncDisposable {
  readonly #options: LeaseCounterOptions;
  readonly #leases: SeenLeases;
  readonly #following: AsyncDisposable;
  /** Those of a list that is not complete yet. */
  #listed: Lease[] | undefined;
  /** Of the last list. */
  #version = '';
  /** Whether the leases match those of the API server. */
  #current = false;
  #lastCount = 1;

  constructor(options: LeaseCounterOptions) {
    this.#options = options;
    this.#leases = new SeenLeases(options.now ?? (() => performance.now()));
    const { client, namespace, selector: labelSelector, observer } = options;
    const times = { idleMs: KUBE.watchIdleMs, retryCapMs: KUBE.watchRetryCapMs };
    const kind = { path: leasesPath(namespace), labelSelector, ...times };
    this.#following = followObjects<Lease>(observed(client, observer), kind, {
      listing: () => {
        this.#listed = [];
      },
      seen: (lease) => {
        if (this.#listed) this.#listed.push(lease);
        else this.#leases.see(lease);
      },
      deleted: ({ metadata: { name, resourceVersion = '' } }) => {
        if (compareVersions(resourceVersion, this.#version) >= 0) this.#leases.delete(name);
      },
      listed: (version) => {
        this.#version = version;
        this.#leases.list(this.#listed ?? [], true);
        this.#listed = undefined;
        this.#current = true;
      },
      failed: (error) => {
        if (error) this.#lost(error);
      },
    });
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

  #lost(error: Error): void {
    this.count();
    this.#current = false;
    const advice = adviceOnRights(error, `get, list and watch on leases in the namespace ${this.#options.namespace}`);
    this.#options.warn(
      `cannot watch server leases, still counting ${this.#lastCount} server(s): ${inWords(error)}${advice}`,
    );
  }
}

/** A client that tells of its lists and watches. */
function observed(client: KubeClient, observer: LeaseCountObserver): Pick<KubeClient, 'request' | 'watch'> {
  return {
    request: (call) =>
      timed(
        () => client.request(call),
        (outcome) => observer.listed(outcome),
      ),
    async *watch(call, options) {
      const onOpen = () => {
        observer.watched({ status: 200, reason: '' });
        options.onOpen();
      };
      try {
        yield* client.watch(call, { ...options, onOpen });
      } catch (error) {
        if (error instanceof KubeStatusError) observer.watched({ status: error.status, reason: error.reason });
        throw error;
      }
    },
  };
}
