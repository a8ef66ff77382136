import type { adminApi } from '@isthmus/proto/admin';
import { millis, type Style } from '../output.ts';

/** Eighths of a character, so that short spans differ. */
const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'] as const;

/**
 * Draws phases as bars below each other on one time scale, each with its milliseconds.
 * @param told what stands above them already: why the dial failed
 */
export function waterfall(phases: readonly PhaseView[], told: string | undefined, width: number, style: Style): string {
  const total = Math.max(...phases.map(({ startMs, ms }) => startMs + ms), 0.001);
  const labels = phases.map(({ name, depth }) => '  '.repeat(Math.min(depth, 8)) + (NAMES[name] ?? name));
  const left = Math.max(...labels.map((label) => label.length));
  const lines = phases.map((phase, index) => {
    const bar = barOf(phase, total, width);
    const note = noteOf(phase, told);
    const drawn = `${' '.repeat(bar.offset)}${phase.failed ? style.bad(bar.text) : style.good(bar.text)}`;
    const gap = ' '.repeat(width - bar.offset - bar.text.length);
    const behind = note === '' ? '' : `${gap}  ${phase.failed ? style.bad(note) : style.faint(note)}`;
    return `${labels[index]?.padEnd(left)}  ${millis(phase.ms).padStart(8)}  ${drawn}${behind}`;
  });
  return `${lines.join('\n')}\n`;
}

function barOf({ startMs, ms }: PhaseView, total: number, width: number): { offset: number; text: string } {
  const offset = Math.min(width - 1, Math.floor((startMs / total) * width));
  const eighths = Math.max(1, Math.round((ms / total) * width * 8));
  const full = '█'.repeat(Math.floor(eighths / 8)) + EIGHTHS[eighths % 8];
  return { offset, text: full.slice(0, width - offset) };
}

/** The verdict covers the whole dial, so the bars show only the parts. */
function noteOf({ depth, detail }: PhaseView, told: string | undefined): string {
  const shown = depth === 0 ? '' : detail.replace(/, session [^,]+/, '');
  return told === undefined ? shown : shown.replace(`, ${told}`, '');
}

/** The first phase of a dial from this machine is `here`. */
export type PhaseView = adminApi.Phase & { readonly failed: boolean };

export interface DialView {
  readonly destination: string;
  /** Empty, as are all ids, for a dial from this machine. */
  readonly gateway: string;
  readonly ok: boolean;
  readonly dial: string;
  readonly trace: string;
  readonly tenant: string;
  readonly agent: string;
  readonly hub: string;
  readonly session: string;
  readonly ms: number;
  readonly phases: readonly PhaseView[];
  /** Time from the open tunnel to the first byte; unset if none came or none was waited for. */
  readonly firstByteMs?: number;
  /** How long the wait for a first byte was, if none came. */
  readonly silentMs?: number;
  /** Why the tunnel ended before a byte arrived. */
  readonly ended?: string;
  readonly error?: { readonly code: string; readonly text: string; readonly advice: readonly string[] };
}

const NAMES: Readonly<Record<string, string>> = { park: 'parked', dns: 'DNS', first_byte: 'first byte' };

/** Narrower bars show nothing. */
const LEAST_WIDTH = 16;
const MOST_WIDTH = 48;
/** Columns beside the bars: labels, milliseconds, and the detail of most phases. */
const BESIDE_BARS = 52;

export function dialText(view: DialView, style: Style): string {
  const { destination, gateway, ok, ms, error, phases } = view;
  const through = throughText(view);
  const verdict = ok
    ? style.good(`${destination} answers${through}: ${millis(ms)}`)
    : error
      ? style.bad(`${destination} cannot be dialled${through}: ${error.code}: ${error.text}`)
      : style.bad(`${destination} accepts${through} after ${millis(ms)}, and ${muteText(view)}`);
  const columns = Number.isFinite(style.columns) ? style.columns : 80;
  const width = Math.min(MOST_WIDTH, Math.max(LEAST_WIDTH, columns - BESIDE_BARS));
  const ids = [`gateway ${gateway}`, `tenant ${view.tenant}`, `dial ${view.dial}`];
  if (view.trace !== '') ids.push(`trace ${view.trace}`);
  const picture = phases.length > 0 ? `\n${waterfall(phases, error?.text, width, style)}` : '';
  const todo = error ? `\nWhat to do:\n${error.advice.map((line) => `  - ${line}\n`).join('')}` : '';
  const named = gateway === '' ? '' : `${style.faint(ids.join(', '))}\n`;
  return `${verdict}\n${named}${picture}${todo}`;
}

function throughText({ gateway, agent, hub }: DialView): string {
  if (gateway === '') return ' from here';
  if (agent === '') return '';
  return hub === '' ? ' from the gateway itself' : ` through ${agent} at ${hub}`;
}

/** One line for a dial of a series. */
export function lineText(view: DialView, style: Style): string {
  const { ok, ms, error, firstByteMs } = view;
  const bad = error ? `${error.code}: ${error.text}` : muteText(view);
  const byte = firstByteMs === undefined ? '' : `, first byte ${millis(firstByteMs)}`;
  const how = ok ? style.good('ok') + byte : style.bad(bad);
  return `${new Date().toISOString().slice(11, 23)}Z ${millis(ms).padStart(8)}${throughText(view)}  ${how}`;
}

/** Of a destination that accepted, and whose first byte was waited for. */
function muteText({ silentMs, ended }: DialView): string {
  return silentMs === undefined ? `ends without a byte: ${ended}` : `sends no byte within ${millis(silentMs)}`;
}
