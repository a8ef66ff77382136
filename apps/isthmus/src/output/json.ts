/** Formats times as ISO 8601, for programs and people alike. Returns '' for 0. */
export function isoTime(ms: bigint | number): string {
  return ms === 0n || ms === 0 ? '' : new Date(Number(ms)).toISOString();
}
