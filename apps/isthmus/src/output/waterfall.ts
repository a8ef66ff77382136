import type { Style } from './style.ts';
import { millis } from './units.ts';

/** One bar of a waterfall. Times are in milliseconds from the start of the whole. */
export interface Span {
  readonly label: string;
  /** Indentation level. The span that contains it is above it. */
  readonly depth: number;
  readonly start: number;
  readonly ms: number;
  readonly note?: string;
  readonly failed?: boolean;
}

/** Eighths of a character, so that short spans differ. */
const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'] as const;

/** Draws spans as bars below each other on one time scale, each with its milliseconds. */
export function waterfall(spans: readonly Span[], width: number, style: Style): string {
  const total = Math.max(...spans.map(({ start, ms }) => start + ms), 0.001);
  const labels = spans.map(({ label, depth }) => '  '.repeat(depth) + label);
  const left = Math.max(...labels.map((label) => label.length));
  const lines = spans.map((span, index) => {
    const paint = span.failed ? style.bad : style.good;
    const bar = barOf(span, total, width);
    const note = span.note ? `  ${span.failed ? style.bad(span.note) : style.faint(span.note)}` : '';
    const drawn = `${' '.repeat(bar.offset)}${paint(bar.text)}`;
    const gap = note === '' ? '' : ' '.repeat(width - bar.offset - bar.text.length);
    return `${labels[index]?.padEnd(left)}  ${millis(span.ms).padStart(8)}  ${drawn}${gap}${note}`;
  });
  return `${lines.join('\n')}\n`;
}

function barOf({ start, ms }: Span, total: number, width: number): { offset: number; text: string } {
  const offset = Math.min(width - 1, Math.floor((start / total) * width));
  const eighths = Math.max(1, Math.round((ms / total) * width * 8));
  const full = '█'.repeat(Math.floor(eighths / 8)) + EIGHTHS[eighths % 8];
  return { offset, text: full.slice(0, width - offset) };
}
