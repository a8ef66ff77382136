import { isPrintable, printable } from '@isthmus/runtime/text';
import { CONSOLE } from '../defaults.ts';

/** Returns a text that peers chose as it can be shown: nothing hidden in it, and no longer than a line. */
export function shown(text: string, most: number = CONSOLE.nameCharacters): string {
  const cut = text.length > most ? `${text.slice(0, most)}… (${text.length.toLocaleString('en')} characters)` : text;
  return printable(cut);
}

/** Returns the beginning of such a text, for a picture beside a table that has all of it. */
export function short(text: string, most: number): string {
  return text.length > most ? `${shown(text.slice(0, most - 1))}…` : shown(text);
}

/** Returns a word for a shell, or undefined for one that nobody should paste: a terminal acts on controls. */
export function shellWord(text: string): string | undefined {
  if (text.length > 512 || !isPrintable(text)) return undefined;
  if (/^[\w@%+=:,./[\]-]+$/.test(text)) return /[[\]]/.test(text) ? `'${text}'` : text;
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function clock(epochMs: number): string {
  return new Date(epochMs).toLocaleTimeString('en-GB');
}
