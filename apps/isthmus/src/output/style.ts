import type { Room } from './fit.ts';

/** Colours by meaning: a command says what it means, and a terminal without colours shows the same text. And the room for tables. */
export interface Style extends Room {
  good(text: string): string;
  bad(text: string): string;
  warning(text: string): string;
  faint(text: string): string;
  strong(text: string): string;
}

const CODES = { good: 32, bad: 31, warning: 33, faint: 2, strong: 1 } as const;

const UNBOUNDED: Room = { columns: Number.POSITIVE_INFINITY, wide: false };

export function styleOf(colours: boolean, room = UNBOUNDED): Style {
  const paint = (code: number) => (text: string) => (colours && text !== '' ? `\u001b[${code}m${text}\u001b[0m` : text);
  return {
    ...room,
    good: paint(CODES.good),
    bad: paint(CODES.bad),
    warning: paint(CODES.warning),
    faint: paint(CODES.faint),
    strong: paint(CODES.strong),
  };
}
