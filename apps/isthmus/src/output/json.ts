/** Times as ISO 8601, which programs and people read alike. Empty for none. */
export function isoTime(ms: bigint | number): string {
  return ms === 0n || ms === 0 ? '' : new Date(Number(ms)).toISOString();
}
