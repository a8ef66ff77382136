import { printable } from '@isthmus/tunnel';

/** The longest reason of a peer that is shown, in characters. A certificate's names are shorter. */
const MAX_REASON = 1_000;

/** Returns undefined if it is not percent-encoded UTF-8. */
export function percentDecoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Accepts any text. encodeURIComponent throws for half of a surrogate pair, which JSON from elsewhere may contain. */
export function percentEncoded(text: string): string {
  return encodeURIComponent(Buffer.from(text).toString());
}

/** Returns a peer's reason for people to read. A reason that is not percent-encoded stays as it is. */
export function reasonOf(text: string): string {
  return printable((percentDecoded(text) ?? text).slice(0, MAX_REASON));
}
