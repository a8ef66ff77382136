import type { Mark } from '@isthmus/tunnel';

/** A mark as the payload of a frame: a byte that says which positions follow `taken`, then each of them in 6 bytes. */
const HAS_FINAL = 1;
const HAS_ASK = 2;
const POSITION = 6;

export function encodeMark({ taken, final, ask }: Mark): Buffer {
  const positions = [taken, ...(final === undefined ? [] : [final]), ...(ask === undefined ? [] : [ask])];
  const bytes = Buffer.allocUnsafe(1 + POSITION * positions.length);
  bytes[0] = (final === undefined ? 0 : HAS_FINAL) | (ask === undefined ? 0 : HAS_ASK);
  let at = 1;
  for (const position of positions) at = bytes.writeUIntBE(position, at, POSITION);
  return bytes;
}

/** @returns undefined if it cannot be read */
export function readMark(bytes: Buffer): Mark | undefined {
  const has = bytes[0] ?? 0;
  const count = 1 + (has & HAS_FINAL ? 1 : 0) + (has & HAS_ASK ? 1 : 0);
  if (has > (HAS_FINAL | HAS_ASK) || bytes.length !== 1 + POSITION * count) return undefined;
  const at = (index: number) => bytes.readUIntBE(1 + POSITION * index, POSITION);
  return {
    taken: at(0),
    ...(has & HAS_FINAL && { final: at(1) }),
    ...(has & HAS_ASK && { ask: at(count - 1) }),
  };
}
