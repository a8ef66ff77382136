import type { Families } from './families.ts';

/** One call to the Kubernetes API about leases. */
interface LeaseCall {
  /** The HTTP status of the answer. */
  readonly status: number;
  /** The API's `reason` of a failure (`Forbidden`, ...); empty for a success. */
  readonly reason: string;
  readonly ms: number;
}

/** Prometheus' default buckets, in seconds. */
const DEFAULT_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Of the server's garbage collection of leases. As in upstream, a call without an answer is not counted. */
export function leaseCollection(families: Families) {
  const culled = families.counter(
    'culled_leases_count',
    'Count of expired leases that the lease garbage collection controller has culled.',
  );
  const outcome = ['http_status_code', 'reason'] as const;
  // The help texts are upstream's, including their typos, because a scrape shows them.
  const deletes = families.counters(
    'lease_delete_total',
    'Count of lease delection calls by the garbage collection controller. Labeled by HTTP status code and reason.',
    outcome,
  );
  const deleteLatency = families.histograms(
    'lease_delete_latency_seconds',
    'Latency of lease deletion calls by the garbage collection controller in seconds.',
    DEFAULT_BUCKETS,
    ['http_status_code'],
  );
  const lists = families.counters(
    'lease_list_total',
    'Count of lease deletion calls by the garbage collection controller. Labeled by HTTP status code and reason.',
    outcome,
  );
  const listLatency = families.histograms(
    'lease_list_latency_seconds',
    'Latency of lease list calls by the garbage collection controller in seconds.',
    DEFAULT_BUCKETS,
    ['http_status_code'],
  );
  return {
    culled: () => culled.inc(),
    deleted({ status, reason, ms }: LeaseCall) {
      deletes.of({ http_status_code: status, reason }).inc();
      deleteLatency.of({ http_status_code: status }).observe(ms / 1000);
    },
    listed({ status, reason, ms }: LeaseCall) {
      lists.of({ http_status_code: status, reason }).inc();
      listLatency.of({ http_status_code: status }).observe(ms / 1000);
    },
  };
}

/** Of an agent that counts servers by their leases. */
export function leaseCount(families: Families, buckets: readonly number[]) {
  const outcome = ['http_response_code', 'reason'] as const;
  const lists = families.counters(
    'lease_lists_total',
    'Count of server lease list calls made by the agent to the k8s apiserver, labeled by HTTP response code and reason',
    outcome,
  );
  // Upstream adds its watches to lease_lists_total and leaves this family empty. Here a watch counts as a watch.
  const watches = families.counters(
    'lease_watches_total',
    'Count of server lease watch calls made by the agent to the k8s apiserver, labeled by HTTP response code and reason',
    outcome,
  );
  const latency = families.histograms(
    'lease_list_latency_seconds',
    'Latency of server lease listing in seconds',
    buckets,
    ['http_response_code'],
  );
  return {
    listed({ status, reason, ms }: LeaseCall) {
      lists.of({ http_response_code: status, reason }).inc();
      latency.of({ http_response_code: status }).observe(ms / 1000);
    },
    watched({ status, reason }: Omit<LeaseCall, 'ms'>) {
      watches.of({ http_response_code: status, reason }).inc();
    },
  };
}
