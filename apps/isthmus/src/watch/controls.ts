import type { DialView } from './dial.ts';

/** The orders in which dials and members are listed. The first is the one at the start. */
export const DIAL_ORDERS = ['slowest', 'newest'] as const;
export const MEMBER_ORDERS = ['name', 'dials', 'failed', 'tunnels'] as const;

/** What an operator has set by keys. */
export interface Controls {
  readonly paused: boolean;
  readonly onlyFailed: boolean;
  /** Only dials that contain this text; empty for all. */
  readonly filter: string;
  /** The text of a filter that is being typed; unset while none is. */
  readonly typing?: string;
  readonly dials: (typeof DIAL_ORDERS)[number];
  readonly members: (typeof MEMBER_ORDERS)[number];
  readonly help: boolean;
}

export const AT_START: Controls = {
  paused: false,
  onlyFailed: false,
  filter: '',
  dials: 'slowest',
  members: 'name',
  help: false,
};

/** Of a filter. */
const MAX_TYPED = 80;

const ENTER = ['\r', '\n'];
const ESCAPE = '\u001b';
const BACK = ['\u007f', '\b'];

/** The keys that end the screen. Raw terminals pass Ctrl-C on as a character. */
const CTRL_C = '\u0003';

/** Returns what is set after a key, or undefined if the key ends the screen. */
export function pressed(controls: Controls, key: string): Controls | undefined {
  if (key === CTRL_C) return undefined;
  if (controls.typing !== undefined) return typed(controls, controls.typing, key);
  switch (key) {
    case 'q':
      return undefined;
    case 'p':
    case ' ':
      return { ...controls, paused: !controls.paused };
    case 'f':
      return { ...controls, onlyFailed: !controls.onlyFailed };
    case 's':
      return { ...controls, dials: after(DIAL_ORDERS, controls.dials) };
    case 'm':
      return { ...controls, members: after(MEMBER_ORDERS, controls.members) };
    case '/':
      return { ...controls, typing: controls.filter };
    case '?':
    case 'h':
      return { ...controls, help: !controls.help };
    case ESCAPE:
      return { ...controls, help: false, filter: '', onlyFailed: false };
    default:
      return controls;
  }
}

/** A key while a filter is being typed. The screen follows each of them. */
function typed({ typing: _, ...controls }: Controls, before: string, key: string): Controls {
  if (ENTER.includes(key)) return { ...controls, filter: before };
  if (key === ESCAPE) return { ...controls, filter: '' };
  const text = BACK.includes(key) ? before.slice(0, -1) : before + (/^[\x21-\x7e]$/.test(key) ? key : '');
  const typing = text.slice(0, MAX_TYPED);
  return { ...controls, filter: typing, typing };
}

function after<T>(all: readonly T[], current: T): T {
  return all[(all.indexOf(current) + 1) % all.length] as T;
}

/** Returns a test of dials, or undefined if all are shown. */
export function chosen({ filter, onlyFailed }: Controls): ((dial: DialView) => boolean) | undefined {
  if (filter === '' && !onlyFailed) return undefined;
  const wanted = filter.toLowerCase();
  return (dial) => {
    if (onlyFailed && dial.ok) return false;
    const { destination, tenant, agent, hub, gateway, caller, error, dial: id } = dial;
    const texts = [destination, tenant, agent, hub, gateway, caller, error?.code ?? '', error?.text ?? '', id];
    return texts.some((text) => text.toLowerCase().includes(wanted));
  };
}

/** What a terminal sends for arrows and function keys (ECMA-48, section 5.4), so that their letters are no keys. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they begin with ESC.
const SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|O.)|./gsu;

/** Splits what a terminal has sent into keys. */
export function keysIn(input: string): string[] {
  return [...input.matchAll(SEQUENCE)].map(([key]) => key).filter((key) => key.length === 1);
}
