import { type Format, OPEN_METRICS, TEXT } from '../exposition/exposition.ts';

/**
 * Returns the format that a scraper's `Accept` header asks for (RFC 9110 section 12.5.1): OpenMetrics if the header names a version of
 * it that we support and does not prefer the text format. Otherwise the text format, as in upstream.
 */
export function formatFor(accept = ''): Format {
  let [open, text] = [0, 0];
  for (const { type, version, weight } of accept.split(',').map(rangeOf)) {
    if (type === 'application/openmetrics-text' && (version ?? '1.0.0') === '1.0.0') open = Math.max(open, weight);
    if (type === 'text/plain') text = Math.max(text, weight);
  }
  return open > 0 && open >= text ? OPEN_METRICS : TEXT;
}

interface MediaRange {
  readonly type: string;
  readonly version: string | undefined;
  /** 0 to 1. */
  readonly weight: number;
}

function rangeOf(text: string): MediaRange {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase());
  const value = (name: string) => parameters.find((part) => part.startsWith(`${name}=`))?.slice(name.length + 1);
  const weight = Number(value('q') ?? 1);
  return { type, version: value('version')?.replaceAll('"', ''), weight: weight >= 0 && weight <= 1 ? weight : 0 };
}
