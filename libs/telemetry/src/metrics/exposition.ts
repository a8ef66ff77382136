/** Renders families in the formats that Prometheus reads. */
import { TELEMETRY } from '../defaults.ts';

export type FamilyType = 'counter' | 'gauge' | 'histogram';

export interface Exemplar {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** Seconds since the epoch. */
  readonly timestamp: number;
}

export interface Sample {
  /** The family's name, with the suffix that the sample has (`_bucket`, `_sum`, `_count`). */
  readonly name: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  readonly exemplar?: Exemplar;
  /** The histogram's native buckets, with its `_count`. Text has no place for them. */
  readonly native?: Native;
}

/** The observations of a histogram: those of at most `TELEMETRY.nativeZeroSeconds`, and the others by the index of their bucket. */
interface Native {
  readonly zero: number;
  readonly counts: ReadonlyMap<number, number>;
}

export interface Family {
  readonly name: string;
  readonly type: FamilyType;
  readonly help: string;
  readonly samples: readonly Sample[];
}

interface Format<Body extends string | Buffer> {
  readonly contentType: string;
  render(families: readonly Family[]): Body;
}

/** The one with native histograms. */
export const PROTOBUF: Format<Buffer> = {
  contentType: 'application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited',
  render: protobufOf,
};

export const TEXT: Format<string> = {
  contentType: 'text/plain; version=0.0.4; charset=utf-8',
  render: (families) =>
    families.map((family) => `${head(family.name, family)}${family.samples.map(line).join('')}`).join('\n'),
};

/**
 * OpenMetrics requires names of counters to end in `_total`, and some of upstream's do not. Those get the type `unknown`, which allows
 * any name, so that every sample has the same name in both formats. Bounds are also written as in the other format: for Prometheus 2,
 * a bound that is written differently is another series.
 */
export const OPEN_METRICS: Format<string> = {
  contentType: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
  render: (families) => `${families.map(openFamily).join('')}# EOF\n`,
};

function openFamily(family: Family): string {
  const { name, type, samples } = family;
  const lines = samples.map((sample) => line(sample, sample.exemplar)).join('');
  if (type !== 'counter') return head(name, family) + lines;
  const isTotal = name.endsWith('_total');
  const named = isTotal ? name.slice(0, -'_total'.length) : name;
  return head(named, { ...family, type: isTotal ? 'counter' : 'unknown' }) + lines;
}

function head(name: string, { help, type }: { readonly help: string; readonly type: string }): string {
  return `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n`;
}

function line({ name, labels, value }: Sample, exemplar?: Exemplar | number): string {
  const shown = `${name}${labelSet(labels)} ${numeral(value)}`;
  if (typeof exemplar !== 'object') return `${shown}\n`;
  const at = exemplar.timestamp.toFixed(3);
  return `${shown} # ${labelSet(exemplar.labels) || '{}'} ${numeral(exemplar.value)} ${at}\n`;
}

function labelSet(labels: Sample['labels']): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${labelValue(value)}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function labelValue(value: string | number): string {
  return typeof value === 'number' ? numeral(value) : escaped(value).replaceAll('"', '\\"');
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

/** Formats a number as Go does. This matters for bucket bounds, because Prometheus 2 treats a bound as a string. */
function numeral(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf';
  if (value === Number.NEGATIVE_INFINITY) return '-Inf';
  if (value === 0 || Math.abs(value) >= 1e-4) return String(value);
  return value.toExponential().replace(/e-(\d)$/, 'e-0$1');
}

/** Protobuf: delimited messages of io.prometheus.client.MetricFamily (client_model's metrics.proto). */

const TYPES = { counter: 0, gauge: 1, histogram: 4 };

const FIXED64 = 1;
const LENGTH_DELIMITED = 2;

/** @param value a whole number, from 0 to 2^53 */
function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]);
}

function uint(field: number, value: number): Buffer {
  return Buffer.concat([varint(field * 8), varint(value)]);
}

function sint(field: number, value: number): Buffer {
  return uint(field, value >= 0 ? 2 * value : -2 * value - 1);
}

function double(field: number, value: number): Buffer {
  const bytes = Buffer.alloc(9);
  bytes[0] = field * 8 + FIXED64;
  bytes.writeDoubleLE(value, 1);
  return bytes;
}

function message(field: number, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([varint(field * 8 + LENGTH_DELIMITED), varint(body.length), body]);
}

function text(field: number, value: string): Buffer {
  return message(field, Buffer.from(value));
}

function labelPairs(labels: Sample['labels']): Buffer[] {
  return Object.entries(labels).map(([name, value]) => message(1, text(1, name), text(2, String(value))));
}

function exemplarOf({ labels, value, timestamp }: Exemplar): Buffer {
  const seconds = Math.floor(timestamp);
  const at = message(3, uint(1, seconds), uint(2, Math.round((timestamp - seconds) * 1e9)));
  return message(3, ...labelPairs(labels), double(2, value), at);
}

/** Buckets that follow each other are a span. Counts are told as differences. */
function nativeOf({ zero, counts }: NonNullable<Sample['native']>): Buffer[] {
  const buckets = [...counts].sort(([a], [b]) => a - b);
  const { nativeSchema: schema, nativeZeroSeconds } = TELEMETRY;
  const spans: { offset: number; length: number }[] = [];
  let [next, before] = [0, 0];
  const deltas = buckets.map(([index, count]) => {
    const last = spans.at(-1);
    if (last && index === next) last.length++;
    else spans.push({ offset: index - next, length: 1 });
    const delta = count - before;
    [next, before] = [index + 1, count];
    return sint(13, delta);
  });
  const told = spans.map(({ offset, length }) => message(12, sint(1, offset), uint(2, length)));
  return [sint(5, schema), double(6, nativeZeroSeconds), uint(7, zero), ...told, ...deltas];
}

/** The lines of a histogram that have the same labels, apart from `le`. */
function histograms({ name, samples }: Family): Buffer[] {
  const metrics = new Map<string, { readonly labels: Sample['labels']; readonly parts: Buffer[] }>();
  for (const { name: line, labels: all, value, exemplar, native } of samples) {
    const { le, ...labels } = all;
    const key = JSON.stringify(labels);
    const metric = metrics.get(key) ?? { labels, parts: [] };
    metrics.set(key, metric);
    if (line === `${name}_sum`) metric.parts.push(double(2, value));
    else if (line === `${name}_count`) metric.parts.push(uint(1, value), ...(native ? nativeOf(native) : []));
    else {
      const bound = le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le);
      metric.parts.push(message(3, uint(1, value), double(2, bound), ...(exemplar ? [exemplarOf(exemplar)] : [])));
    }
  }
  return [...metrics.values()].map(({ labels, parts }) => message(4, ...labelPairs(labels), message(7, ...parts)));
}

/** Returns a family with its length before it. */
function delimited(family: Family): Buffer {
  const { name, help, type, samples } = family;
  const single = ({ labels, value }: Sample) =>
    message(4, ...labelPairs(labels), message(type === 'gauge' ? 2 : 3, double(1, value)));
  const metrics = type === 'histogram' ? histograms(family) : samples.map(single);
  const body = Buffer.concat([text(1, name), text(2, help), uint(3, TYPES[type]), ...metrics]);
  return Buffer.concat([varint(body.length), body]);
}

function protobufOf(families: readonly Family[]): Buffer {
  return Buffer.concat(families.filter(({ samples }) => samples.length > 0).map(delimited));
}

/**
 * Returns the format that a scraper's `Accept` header asks for (RFC 9110 section 12.5.1): protobuf or OpenMetrics if the header names
 * a version of it that we support and prefers no other. Otherwise the text format, as in upstream.
 */
export function formatFor(accept = ''): Format<string | Buffer> {
  let [protobuf, open, text] = [0, 0, 0];
  for (const { type, version, proto, encoding, weight } of accept.split(',').map(rangeOf)) {
    if (type === 'application/openmetrics-text' && (version ?? '1.0.0') === '1.0.0') open = Math.max(open, weight);
    if (type === 'text/plain') text = Math.max(text, weight);
    const families = proto === 'io.prometheus.client.metricfamily' && encoding === 'delimited';
    if (type === 'application/vnd.google.protobuf' && families) protobuf = Math.max(protobuf, weight);
  }
  if (protobuf > 0 && protobuf >= Math.max(open, text)) return PROTOBUF;
  return open > 0 && open >= text ? OPEN_METRICS : TEXT;
}

interface MediaRange {
  readonly type: string;
  readonly version: string | undefined;
  readonly proto: string | undefined;
  readonly encoding: string | undefined;
  /** 0 to 1. */
  readonly weight: number;
}

function rangeOf(text: string): MediaRange {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase());
  const value = (name: string) =>
    parameters
      .find((part) => part.startsWith(`${name}=`))
      ?.slice(name.length + 1)
      .replaceAll('"', '');
  const weight = Number(value('q') ?? 1);
  const [version, proto, encoding] = [value('version'), value('proto'), value('encoding')];
  return { type, version, proto, encoding, weight: weight >= 0 && weight <= 1 ? weight : 0 };
}
