/** The longest time of a timer, in milliseconds. Timers overflow above it and fire immediately, so a longer limit counts as none. */
export const LONGEST_TIMER = 2 ** 31 - 1;
