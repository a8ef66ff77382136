/** The runtime's own: a test may replace the global ones by a mock. */
const { setImmediate, setTimeout, clearTimeout } = globalThis;

const FIRST_POLL_MS = 2;
/** The time to the next check, as a share of the time waited so far: a wait of 1 s checks 20 times. */
const POLL_SHARE = 1 / 4;
/**
 * The longest time between two checks. A condition may ask a program for its metrics, so a long wait checks less often and leaves the
 * processors to the programs.
 */
const LONGEST_POLL_MS = 200;

export interface Wait {
  /** Milliseconds; default 60 s. */
  readonly deadline?: number;
  /** Time between two checks, in milliseconds. Default: a quarter of the time waited so far, from 2 to 200. 0: each turn of the event loop. */
  readonly every?: number;
  /** What is waited for, for the text of the error. A function is called when the wait has failed. Default: the condition's source. */
  readonly what?: What;
  /** Returns why it is pointless to wait longer, if it is. */
  readonly hopeless?: () => string | undefined;
}

type What = string | (() => string);

/** Far longer than anything here takes on a slow and busy machine. It ends what hangs, and does not judge speed. */
export const DEADLINE_MS = 60_000;

/**
 * Waits for a condition, and returns its value once that is neither undefined, null nor false.
 * A condition that throws has not come true yet; its last error becomes the cause when time runs out.
 */
export async function until<T>(condition: () => T | Promise<T>, wait: Wait | What = {}): Promise<True<T>> {
  const { deadline = DEADLINE_MS, every, what = String(condition), hopeless } = asWait(wait);
  const start = performance.now();
  for (;;) {
    const lost = hopeless?.();
    const { value, cause } = await attempt(condition);
    if (isTrue(value)) return value;
    const ms = Math.round(performance.now() - start);
    if (lost || ms >= deadline) throw new Error(waited(ms, what, lost ?? cause), { cause });
    await pause(every ?? Math.min(Math.max(ms * POLL_SHARE, FIRST_POLL_MS), LONGEST_POLL_MS));
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => void (ms === 0 ? setImmediate(resolve) : setTimeout(resolve, ms)));
}

export type True<T> = Exclude<T, undefined | null | false>;

function isTrue<T>(value: T): value is True<T> {
  return value !== undefined && value !== null && value !== false;
}

async function attempt<T>(condition: () => T | Promise<T>): Promise<{ value?: T; cause?: unknown }> {
  try {
    return { value: await condition() };
  } catch (cause) {
    return { cause };
  }
}

/** Waits until an assertion holds; fails with the assertion's own error. */
export async function eventually(
  assertion: () => void | Promise<void>,
  wait: Pick<Wait, 'deadline' | 'every'> = {},
): Promise<void> {
  let failure: unknown;
  const holds = async () => {
    try {
      await assertion();
      return true;
    } catch (error) {
      failure = error;
      return false;
    }
  };
  await until(holds, { ...wait, what: 'assertion' }).catch(() => {
    throw failure;
  });
}

/** Waits for a promise until a deadline. */
export async function within<T>(promise: Promise<T>, wait: Wait | What = {}): Promise<T> {
  const { deadline = DEADLINE_MS, what = 'a promise' } = asWait(wait);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(waited(deadline, what))), deadline);
  });
  try {
    return await Promise.race([promise, expired]);
  } finally {
    clearTimeout(timer);
  }
}

function asWait(wait: Wait | What): Wait {
  return typeof wait === 'object' ? wait : { what: wait };
}

function waited(ms: number, what: What, cause?: unknown): string {
  const reason = cause === undefined ? '' : ` (${cause instanceof Error ? cause.message : cause})`;
  return `waited ${ms} ms in vain for ${typeof what === 'string' ? what : what()}${reason}`;
}
