const DEADLINE_MS = 60_000;

/** Polls until `holds` resolves to true. Rejects after a minute. */
export async function until(holds: () => Promise<boolean>, what: string | (() => string)): Promise<void> {
  const deadline = performance.now() + DEADLINE_MS;
  while (!(await holds())) {
    if (performance.now() > deadline)
      throw new Error(`not within ${DEADLINE_MS} ms: ${typeof what === 'string' ? what : what()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
