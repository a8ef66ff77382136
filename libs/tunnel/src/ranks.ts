/**
 * How sessions compare for a dial, as one number; less is better. These are its parts, most significant first, each with its
 * number of values. Their order is that of `Attempts` and `Placement.choose`.
 */
const RANKS = { suspected: 2, strategy: 16, key: 256, draining: 2, busy: 2, process: 2, zone: 2 };
const SIZES = Object.values(RANKS);

export type RankPart = keyof typeof RANKS;

/** @param parts in the order of `RANKS` */
export function rankOf(parts: readonly number[]): number {
  return parts.reduce((rank, part, index) => rank * (SIZES[index] as number) + part, 0);
}

/** The first part in which two ranks differ, and its value in the second. */
export function difference(rank: number, best: number): readonly [part: RankPart, value: number] | undefined {
  let [a, b] = [rank, best];
  let first: [RankPart, number] | undefined;
  for (const [name, size] of Object.entries(RANKS).reverse()) {
    if (a % size !== b % size) first = [name as RankPart, b % size];
    a = Math.floor(a / size);
    b = Math.floor(b / size);
  }
  return first;
}
