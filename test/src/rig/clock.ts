/** Milliseconds of the machine's monotonic clock, which all of its processes share. */
export function clock(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
