import type { Count, Durations, Families, Series } from './families.ts';

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

/** A family about one kind of call: its name and its help, which is upstream's with its typos, because a scrape shows it. */
type Told = readonly [name: string, help: string];

/** Counts calls of one kind, and how long they took. @param status upstream's label for the status */
function callsOf(
  families: Families,
  status: 'http_status_code' | 'http_response_code',
  [name, help]: Told,
  latency?: Told,
  buckets: readonly number[] = DEFAULT_BUCKETS,
) {
  const totals: Series<string, Count> = families.counter(`${name}{${status},reason}`, help);
  const times: Series<string, Durations> | undefined =
    latency && families.histogram(`${latency[0]}{${status}}`, latency[1], buckets);
  return ({ status: code, reason, ms = 0 }: Omit<LeaseCall, 'ms'> & Partial<LeaseCall>) => {
    totals.of({ [status]: code, reason }).value++;
    times?.of({ [status]: code }).observe(ms / 1000);
  };
}

/** Of the server's garbage collection of leases. As in upstream, a call without an answer is not counted. */
export function leaseCollection(families: Families) {
  const culled = families.counter(
    'culled_leases_count',
    'Count of expired leases that the lease garbage collection controller has culled.',
  );
  const by = 'by the garbage collection controller';
  const code = 'http_status_code';
  return {
    culled: () => culled.value++,
    deleted: callsOf(
      families,
      code,
      ['lease_delete_total', `Count of lease delection calls ${by}. Labeled by HTTP status code and reason.`],
      ['lease_delete_latency_seconds', `Latency of lease deletion calls ${by} in seconds.`],
    ),
    listed: callsOf(
      families,
      code,
      ['lease_list_total', `Count of lease deletion calls ${by}. Labeled by HTTP status code and reason.`],
      ['lease_list_latency_seconds', `Latency of lease list calls ${by} in seconds.`],
    ),
  };
}

/** Of an agent that counts servers by their leases. */
export function leaseCount(families: Families, buckets: readonly number[]) {
  const by = 'calls made by the agent to the k8s apiserver, labeled by HTTP response code and reason';
  const code = 'http_response_code';
  // Upstream adds its watches to lease_lists_total and leaves the other family empty. Here a watch counts as a watch.
  return {
    listed: callsOf(
      families,
      code,
      ['lease_lists_total', `Count of server lease list ${by}`],
      ['lease_list_latency_seconds', 'Latency of server lease listing in seconds'],
      buckets,
    ),
    watched: callsOf(families, code, ['lease_watches_total', `Count of server lease watch ${by}`]),
  };
}
