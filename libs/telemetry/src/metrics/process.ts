import { getOrPut } from '@isthmus/runtime';
import { type Role, unlessProbed } from '@isthmus/tunnel';
import type { Registry } from 'prom-client';
import { TELEMETRY } from '../defaults.ts';
import type { Bucket, Family, FamilyType, Sample } from './exposition.ts';
import type { Families } from './families.ts';

/** Adds what a process says of itself: the event loop's delay, `process_*` and `nodejs_*`. Call it only once per process. */
export function processMetrics(families: Families): void {
  families.append(processFamilies());
  families.defer(eventLoopDelay(families.under('isthmus_')));
}

/**
 * Families with this prefix are left out: `isthmus_event_loop_delay_seconds` reports the same from the start. Each page resets these
 * families, so they show NaN and 9e9 if nothing was measured since, which always happens on the first page.
 */
const EVENT_LOOP = 'nodejs_eventloop_lag_';

/**
 * Returns a function that reads the current `process_*` (with the names of Go's client) and `nodejs_*` families. Call it only once per
 * process, because prom-client's observers never stop.
 *
 * prom-client is loaded for the first page, since it takes 2 MB and a tenth of a program's start. Garbage collections are counted from
 * then on, CPU time from the start of the process. If it cannot be loaded or read, the page lacks these families, and the next page
 * tries again.
 */
export function processFamilies(open = openRegistry): () => Promise<Family[]> {
  let opened: Promise<Registry> | undefined;
  const measured = async () => {
    opened ??= open().catch((error) => {
      opened = undefined;
      throw error;
    });
    const families = await (await opened).getMetricsAsJSON();
    return families.map(({ name, help, type: word, values }) => {
      // At run time it is the word that the page shows, whatever the type declarations say.
      const type = String(word) as FamilyType;
      return { name, help, type, samples: type === 'histogram' ? histogramsOf(values) : values.map(sampleOf) };
    });
  };
  return () => measured().catch(() => []);
}

async function openRegistry(): Promise<Registry> {
  const { collectDefaultMetrics, Counter, Registry } = await import('prom-client');
  const registry = new Registry();
  const { user, system } = process.cpuUsage();
  collectDefaultMetrics({ register: registry });
  for (const { name } of registry.getMetricsAsArray())
    if (name.startsWith(EVENT_LOOP)) registry.removeSingleMetric(name);
  const before = { user_seconds: user, system_seconds: system, seconds: user + system };
  for (const [kind, microseconds] of Object.entries(before)) {
    const counter = registry.getSingleMetric(`process_cpu_${kind}_total`);
    if (counter instanceof Counter) counter.inc(microseconds / 1e6);
  }
  return registry;
}

/** A line as prom-client reports it. */
interface Measured {
  readonly value: number;
  readonly labels: Partial<Record<string, string | number>>;
  readonly metricName?: string;
}

/** All labels have a value, but prom-client's types do not say so. */
function sampleOf({ labels, value }: Measured): Sample {
  return { labels: labels as Sample['labels'], value };
}

/** Puts together the lines of each series of a histogram: their labels are the same, apart from `le`. */
function histogramsOf(lines: readonly Measured[]): Sample[] {
  const series = new Map<string, { readonly labels: Sample['labels']; value: number; readonly buckets: Bucket[] }>();
  for (const { metricName = '', labels, value } of lines) {
    const { le, ...others } = labels as Sample['labels'];
    const one = getOrPut(series, JSON.stringify(others), () => ({ labels: others, value: 0, buckets: [] }));
    if (metricName.endsWith('_sum')) one.value = value;
    if (le !== undefined) one.buckets.push({ le: le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le), count: value });
  }
  return [...series.values()];
}

/** In seconds. A Node timer is up to one millisecond late even if nothing else runs. */
const BUCKETS = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/**
 * Measures with a timer how long ready work waits for its turn in the event loop. perf_hooks' `monitorEventLoopDelay` does not fit: its
 * quantiles can neither be added up nor read by two scrapers, and in Deno 2.9 it is only a stub.
 *
 * While the loop is blocked the timer does not run either, so one long delay also counts for the samples missed during it. A delay of
 * 1 s counts as 1 s, 0.9 s, and so on.
 *
 * @returns a function that stops it
 */
export function eventLoopDelay(families: Families, now = () => performance.now()): () => void {
  const delays = families.histogram(
    'event_loop_delay_seconds',
    'Delay of the event loop, sampled every 100 ms. All tunnels of the process wait so long.',
    BUCKETS,
  );
  let due = now() + TELEMETRY.loopSampleMs;
  const timer = setInterval(() => {
    const at = now();
    const delay = Math.max(0, at - due);
    const looks = 1 + Math.min(Math.floor(delay / TELEMETRY.loopSampleMs), TELEMETRY.loopSamplesMissed);
    for (let look = 0; look < looks; look++) delays.observe((delay - look * TELEMETRY.loopSampleMs) / 1000);
    due = at + TELEMETRY.loopSampleMs;
  }, TELEMETRY.loopSampleMs);
  // The timer must not keep the process alive.
  timer.unref();
  return () => clearInterval(timer);
}

/** Counts the audit records that a process lost. */
export function auditMetrics(families: Families): void {
  const dropped = families.counter('audit_dropped_total', 'Audit records that were lost.');
  families.on({
    'audit:dropped'(records) {
      dropped.value += records;
    },
  });
}

/** When a program's certificates expire, and whether their files can be used. */
export function certificateMetrics(families: Families): void {
  const expiry = families.gauge(
    'certificate_expiry_timestamp_seconds{where}',
    'When the certificate in use expires, in seconds since the epoch, by where it is used: on a port (callers, agents, peers, admin), or as a client certificate (uplink, redis, and peers on a gateway).',
  );
  const faults = families.gauge(
    'certificate_faults{where}',
    'Certificate files, CA bundles, tokens of agents and credentials for Redis that cannot be used, or not whole, by where they are used. The log and isthmus check say why.',
  );
  const faulty = new Map<string, Set<string>>();
  families.on({
    certificate(where, validUntil) {
      expiry.of({ where }).value = validUntil / 1000;
    },
    'certificate:failure'(where, files, error) {
      const of = getOrPut(faulty, where, () => new Set<string>());
      if (error) of.add(files);
      else of.delete(files);
      faults.of({ where }).value = of.size;
    },
  });
}

/** What a process turns away, what it gets wrong itself, and whose reader it did not wait for. */
export function refusalMetrics(families: Families, role: Role): void {
  const refused = families.counter(
    'refused_total{where}',
    'Connections and requests that were malformed or not allowed, by where.',
  );
  const faults = families.counter(
    'faults_total{where}',
    'Connections closed because Isthmus itself threw an error, by where. Each is a bug, with its stack in the log.',
  );
  const stalled = families.counter(
    'stalled_tunnels_ended_total{role}',
    'Tunnels cut because their reader read nothing for 10 s and blocked others.',
  );
  stalled.of({ role });
  families.on({
    'tunnel:stalled': (by) => stalled.of({ role: by }).value++,
    fault: (where) => faults.of({ where }).value++,
    ...unlessProbed((where) => refused.of({ where }).value++),
  });
}
