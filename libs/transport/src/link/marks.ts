import type { Mark } from '@isthmus/tunnel';

/** The payload of a mark's frame: a byte that says which positions follow `taken`, then `taken` and each of them in 6 bytes. */
const HAS_FINAL = 1;
const HAS_ASK = 2;
const POSITION_BYTES = 6;

export function encodeMark({ taken, final, ask }: Mark): Buffer {
  const positions = [taken, ...(final === undefined ? [] : [final]), ...(ask === undefined ? [] : [ask])];
  const bytes = Buffer.allocUnsafe(1 + POSITION_BYTES * positions.length);
  bytes[0] = (final === undefined ? 0 : HAS_FINAL) | (ask === undefined ? 0 : HAS_ASK);
  let at = 1;
  for (const position of positions) at = bytes.writeUIntBE(position, at, POSITION_BYTES);
  return bytes;
}

/** @returns undefined for a malformed mark */
export function readMark(bytes: Buffer): Mark | undefined {
  const has = bytes[0] ?? 0;
  const count = 1 + (has & HAS_FINAL ? 1 : 0) + (has & HAS_ASK ? 1 : 0);
  if (has > (HAS_FINAL | HAS_ASK) || bytes.length !== 1 + POSITION_BYTES * count) return undefined;
  const at = (index: number) => bytes.readUIntBE(1 + POSITION_BYTES * index, POSITION_BYTES);
  return {
    taken: at(0),
    ...(has & HAS_FINAL && { final: at(1) }),
    ...(has & HAS_ASK && { ask: at(count - 1) }),
  };
}
