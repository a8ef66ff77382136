/** Renders families in the formats that Prometheus reads. */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { TELEMETRY } from '../defaults.ts';

export type FamilyType = 'counter' | 'gauge' | 'histogram';

export interface Exemplar {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** Seconds since the epoch. */
  readonly timestamp: number;
}

export interface Sample {
  readonly labels: Readonly<Record<string, string | number>>;
  /** For a histogram, the sum of what was observed. */
  readonly value: number;
  /** Set for a histogram, by ascending bounds. */
  readonly buckets?: readonly Bucket[];
  /** The histogram's native buckets. Text has no place for them. */
  readonly native?: Native;
}

/** How many observations were at most at a bound. The last bound of a histogram is infinity. */
export interface Bucket {
  readonly le: number;
  readonly count: number;
  readonly exemplar?: Exemplar;
}

/** How many observations a histogram has. */
export function countOf(buckets: readonly Bucket[]): number {
  return buckets.at(-1)?.count ?? 0;
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
  render: (families) => families.map((family) => `${head(family.name, family)}${linesOf(family, false)}`).join('\n'),
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
  const { name, type } = family;
  const lines = linesOf(family, true);
  if (type !== 'counter') return head(name, family) + lines;
  const isTotal = name.endsWith('_total');
  const named = isTotal ? name.slice(0, -'_total'.length) : name;
  return head(named, { ...family, type: isTotal ? 'counter' : 'unknown' }) + lines;
}

function head(name: string, { help, type }: { readonly help: string; readonly type: string }): string {
  return `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n`;
}

function linesOf({ name, samples }: Family, withExemplars: boolean): string {
  return samples
    .flatMap(({ labels, value, buckets }) => {
      if (!buckets) return line(name, labels, value);
      const ofBuckets = buckets.map(({ le, count, exemplar }) =>
        line(`${name}_bucket`, { le, ...labels }, count, withExemplars ? exemplar : undefined),
      );
      return [...ofBuckets, line(`${name}_sum`, labels, value), line(`${name}_count`, labels, countOf(buckets))];
    })
    .join('');
}

function line(name: string, labels: Sample['labels'], value: number, exemplar?: Exemplar): string {
  const shown = `${name}${labelSet(labels)} ${numeral(value)}`;
  if (!exemplar) return `${shown}\n`;
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

/** The field of a Metric that holds a value of each type. */
const FIELDS = { counter: 3, gauge: 2, histogram: 7 };

const { Varint, Bit64, LengthDelimited } = WireType;

/** @param write writes the message's fields to the same writer */
function message(to: BinaryWriter, field: number, write: () => void): void {
  to.tag(field, LengthDelimited).fork();
  write();
  to.join();
}

function text(to: BinaryWriter, field: number, value: string): void {
  to.tag(field, LengthDelimited).string(value);
}

function double(to: BinaryWriter, field: number, value: number): void {
  to.tag(field, Bit64).double(value);
}

function writeLabels(to: BinaryWriter, labels: Sample['labels']): void {
  for (const [name, value] of Object.entries(labels)) {
    message(to, 1, () => {
      text(to, 1, name);
      text(to, 2, String(value));
    });
  }
}

function writeExemplar(to: BinaryWriter, { labels, value, timestamp }: Exemplar): void {
  const seconds = Math.floor(timestamp);
  message(to, 3, () => {
    writeLabels(to, labels);
    double(to, 2, value);
    message(to, 3, () => {
      to.tag(1, Varint).int64(seconds);
      to.tag(2, Varint).int32(Math.round((timestamp - seconds) * 1e9));
    });
  });
}

/** Buckets that follow each other are a span. Counts are told as differences. */
function writeNative(to: BinaryWriter, { zero, counts }: Native): void {
  const buckets = [...counts].sort(([a], [b]) => a - b);
  const spans: { offset: number; length: number }[] = [];
  let [next, before] = [0, 0];
  const deltas = buckets.map(([index, count]) => {
    const last = spans.at(-1);
    if (last && index === next) last.length++;
    else spans.push({ offset: index - next, length: 1 });
    const delta = count - before;
    [next, before] = [index + 1, count];
    return delta;
  });
  to.tag(5, Varint).sint32(TELEMETRY.nativeSchema);
  double(to, 6, TELEMETRY.nativeZeroSeconds);
  to.tag(7, Varint).uint64(zero);
  for (const { offset, length } of spans)
    message(to, 12, () => to.tag(1, Varint).sint32(offset).tag(2, Varint).uint32(length));
  for (const delta of deltas) to.tag(13, Varint).sint64(delta);
}

function writeHistogram(to: BinaryWriter, buckets: readonly Bucket[], { value, native }: Sample): void {
  for (const { le, count, exemplar } of buckets)
    message(to, 3, () => {
      to.tag(1, Varint).uint64(count);
      double(to, 2, le);
      if (exemplar) writeExemplar(to, exemplar);
    });
  double(to, 2, value);
  to.tag(1, Varint).uint64(countOf(buckets));
  if (native) writeNative(to, native);
}

/** Writes a family with its length before it. */
function writeFamily(to: BinaryWriter, { name, help, type, samples }: Family): void {
  to.fork();
  text(to, 1, name);
  text(to, 2, help);
  to.tag(3, Varint).int32(TYPES[type]);
  for (const sample of samples)
    message(to, 4, () => {
      writeLabels(to, sample.labels);
      message(to, FIELDS[type], () => {
        if (sample.buckets) writeHistogram(to, sample.buckets, sample);
        else double(to, 1, sample.value);
      });
    });
  to.join();
}

function protobufOf(families: readonly Family[]): Buffer {
  const writer = new BinaryWriter();
  for (const family of families) if (family.samples.length > 0) writeFamily(writer, family);
  return Buffer.from(writer.finish());
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
