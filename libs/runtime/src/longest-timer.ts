/** A timer's longest time, in milliseconds: what is to take longer has no limit. */
export const LONGEST_TIMER = 2 ** 31 - 1;
