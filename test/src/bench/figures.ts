/** @param values in any order; 0 if there are none */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
}

/** Returns undefined if there are no values. */
export function median(values: readonly number[]): number | undefined {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low, high] = [sorted[middle - 1], sorted[middle]];
  return sorted.length % 2 === 1 || low === undefined || high === undefined ? high : (low + high) / 2;
}

/** Three significant digits, as far as that makes sense. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 10_000) return `${(value / 1000).toFixed(size >= 100_000 ? 0 : 1)}k`;
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(size >= 0.1 || size === 0 ? 2 : 3);
}
