import { LONGEST_TIMER } from './longest-timer.ts';

/**
 * Waits for work for at most `ms`. Returns true if it finished in time. Rejects if the work rejects in time. Later results and errors
 * of the work are ignored.
 */
export async function within(work: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    if (ms <= LONGEST_TIMER) timer = setTimeout(resolve, ms, false);
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
