/** The longest delay that timers support. */
const LONGEST_MS = 2 ** 31 - 1;

/**
 * Waits for work for at most `ms`. Returns true if it finished in time. Rejects if the work rejects in time. Later results and errors
 * of the work are ignored.
 */
export async function within(work: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    if (ms <= LONGEST_MS) timer = setTimeout(resolve, ms, false);
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
