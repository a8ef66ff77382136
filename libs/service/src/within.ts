/** The longest delay that timers take. */
const LONGEST_MS = 2 ** 31 - 1;

/**
 * Waits for work, but no longer than `ms`; true when it was done in time. Rejects as the work does.
 * What the work does later is not seen any more.
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
