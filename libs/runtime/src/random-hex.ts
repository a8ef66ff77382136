import { randomFillSync } from 'node:crypto';

/** Random bytes at hand: to get a few of them takes as long as to get all these. */
const pool = Buffer.alloc(4096);
let next = pool.length;

/** Returns so many random bytes as hexadecimal digits. */
export function randomHex(bytes: number): string {
  if (next + bytes > pool.length) {
    randomFillSync(pool);
    next = 0;
  }
  next += bytes;
  return pool.toString('hex', next - bytes, next);
}
