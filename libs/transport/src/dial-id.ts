import { randomFillSync } from 'node:crypto';

const pool = Buffer.alloc(8 * 256);
let next = pool.length;

/** A new dial id: 64 random bits as 16 hexadecimal digits. Random bytes are fetched 256 ids at a time. */
export function newDialId(): string {
  if (next === pool.length) {
    randomFillSync(pool);
    next = 0;
  }
  next += 8;
  return pool.toString('hex', next - 8, next);
}
