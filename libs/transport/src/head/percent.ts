import { printable } from '@isthmus/tunnel';

/** The longest reason of a peer's that is told, in characters: a certificate's names are shorter. */
const MAX_REASON = 1_000;

/** Undefined when it is not percent-encoded UTF-8. */
export function percentDecoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Of any text: encodeURIComponent throws for half of a surrogate pair, which JSON from elsewhere may hold. */
export function percentEncoded(text: string): string {
  return encodeURIComponent(Buffer.from(text).toString());
}

/** A peer's reason, for people. What is not percent-encoded is told as it came. */
export function reasonOf(text: string): string {
  return printable((percentDecoded(text) ?? text).slice(0, MAX_REASON));
}
