/** Renders families in the formats that Prometheus reads. */
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

export interface Family {
  readonly name: string;
  readonly type: FamilyType;
  readonly help: string;
  readonly samples: readonly Sample[];
}

interface Format {
  readonly contentType: string;
  render(families: readonly Family[]): string;
}

export const TEXT: Format = {
  contentType: 'text/plain; version=0.0.4; charset=utf-8',
  render: (families) => families.map((family) => `${head(family.name, family)}${linesOf(family, false)}`).join('\n'),
};

/**
 * OpenMetrics requires names of counters to end in `_total`, and some of upstream's do not. Those get the type `unknown`, which allows
 * any name, so that every sample has the same name in both formats. Bounds are also written as in the other format: for Prometheus 2,
 * a bound that is written differently is another series.
 */
export const OPEN_METRICS: Format = {
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

/**
 * Returns the format that a scraper's `Accept` header asks for (RFC 9110 section 12.5.1): OpenMetrics if the header names a version of it
 * that we support and does not prefer text. Otherwise the text format, as in upstream.
 */
export function formatFor(accept = ''): Format {
  let [open, text] = [0, 0];
  for (const { type, version, weight } of accept.split(',').map(rangeOf)) {
    if (type === 'application/openmetrics-text' && (version ?? '1.0.0') === '1.0.0') open = Math.max(open, weight);
    if (type === 'text/plain') text = Math.max(text, weight);
  }
  return open > 0 && open >= text ? OPEN_METRICS : TEXT;
}

/** A media range of an `Accept` header. Its weight is 0 to 1. */
function rangeOf(text: string) {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase());
  const value = (name: string) =>
    parameters
      .find((part) => part.startsWith(`${name}=`))
      ?.slice(name.length + 1)
      .replaceAll('"', '');
  const weight = Number(value('q') ?? 1);
  return { type, version: value('version'), weight: weight >= 0 && weight <= 1 ? weight : 0 };
}
