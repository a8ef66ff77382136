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

export interface LeaseList {
  readonly metadata?: { readonly resourceVersion?: string };
  readonly items?: readonly Lease[];
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

/** Whether the holder renewed it recently enough, by the clock of this machine, as in upstream. */
export function isLeaseValid({ spec }: Lease, now: number): boolean {
  const renewed = Date.parse(spec?.renewTime ?? spec?.acquireTime ?? '');
  const durationMs = (spec?.leaseDurationSeconds ?? 0) * 1000;
  return renewed + durationMs > now;
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
