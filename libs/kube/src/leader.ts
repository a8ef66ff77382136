import { type KubeClient, KubeStatusError } from './client.ts';
import { KUBE } from './defaults.ts';
import { findLease, type Lease, leasePath, microTime, periodic, SeenLeases, writeLease } from './lease.ts';

export interface LeaderOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  readonly name: string;
  /** Who holds the lease, if this process does: unique. */
  readonly identity: string;
  readonly failed: (error: Error) => void;
}

export interface Leader extends AsyncDisposable {
  /** Whether this process held the lease when it last asked, and may still do so. */
  readonly leads: boolean;
}

/** Takes a lease that one process holds at a time, and takes it over when its holder no longer renews it. Gives it up when it is disposed of. */
export function leaderLease({ client, namespace, name, identity, failed }: LeaderOptions): Leader {
  const seen = new SeenLeases(() => performance.now());
  let mine: Lease | undefined;
  let until = 0;

  const write = async (base: Lease | undefined, signal: AbortSignal) => {
    const now = microTime(Date.now());
    const ours = base?.spec?.holderIdentity === identity;
    const lease = {
      metadata: { ...base?.metadata, name, namespace },
      spec: {
        ...base?.spec,
        holderIdentity: identity,
        leaseDurationSeconds: KUBE.leaderSeconds,
        renewTime: now,
        ...(!ours && { acquireTime: now }),
      },
    };
    const asked = performance.now();
    mine = await writeLease(client, lease, base !== undefined, signal);
    until = asked + KUBE.leaderSeconds * 1000;
  };

  const round = async (signal: AbortSignal) => {
    try {
      if (mine && performance.now() < until) {
        await write(mine, signal);
        return KUBE.leaderRenewMs;
      }
      mine = undefined;
      const found = await findLease(client, namespace, name, signal);
      seen.list(found ? [found] : [], false);
      const holder = found?.spec?.holderIdentity ?? '';
      if (holder === '' || holder === identity || !seen.isLive(name)) await write(found, signal);
    } catch (error) {
      // Somebody else wrote it first.
      if (!(error instanceof KubeStatusError && error.status === 409)) throw error;
      mine = undefined;
    }
    return KUBE.leaderRenewMs;
  };

  const rounds = periodic(round, (error) => {
    failed(error as Error);
    return KUBE.leaderRenewMs;
  });
  return {
    get leads() {
      return mine !== undefined && performance.now() < until;
    },
    async [Symbol.asyncDispose]() {
      await rounds[Symbol.asyncDispose]();
      if (!mine || performance.now() >= until) return;
      const body = { ...mine, spec: { ...mine.spec, holderIdentity: '' } };
      mine = undefined;
      await client.request({ method: 'PUT', path: leasePath(namespace, name), body }).catch(() => {});
    },
  };
}
