/** Returns the smallest number that at least the part `of` of all does not exceed; 0 if there are none. @param sorted ascending */
export function quantile(sorted: readonly number[], of: number): number {
  return sorted[Math.max(0, Math.min(sorted.length, Math.ceil(of * sorted.length)) - 1)] ?? 0;
}
