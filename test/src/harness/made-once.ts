import { randomUUID } from 'node:crypto';
import { access, link, readFile, rm, writeFile } from 'node:fs/promises';
import { until } from '@isthmus/runtime/testing';
import { isAlive } from './processes.ts';

const EVERY_MS = 200;

/**
 * Makes a file unless it exists. Of several processes that want it at the same time, one makes it and the others wait: two Go builds at
 * once take twice the time of one.
 * @param make puts the complete file at its path at once, by renaming it
 * @param deadline how long the making may take, in milliseconds
 */
export async function madeOnce(path: string, deadline: number, make: () => Promise<void>): Promise<void> {
  const claim = `${path}.pid`;
  // At once with who made it: one that was killed in between would leave a claim of nobody.
  const isMine = async () => {
    const own = `${claim}-${randomUUID()}`;
    await writeFile(own, `${process.pid}`);
    try {
      await link(own, claim);
      return true;
    } catch {
      return false;
    } finally {
      await rm(own);
    }
  };
  const mayMake = async () => {
    if (await exists(path)) return 'is made';
    if (await isMine()) return 'make it';
    // Its maker was killed. If two find out at once, both make it, which does no harm.
    if (!(await isClaimed(claim))) await rm(claim, { force: true });
    return undefined;
  };
  const next = await until(mayMake, { deadline, every: EVERY_MS, what: `${path}, which another process makes` });
  if (next === 'is made') return;
  try {
    await make();
  } finally {
    await rm(claim, { force: true });
  }
}

async function isClaimed(claim: string): Promise<boolean> {
  const text = await readFile(claim, 'utf8').catch(() => undefined);
  // It has just gone.
  if (text === undefined) return true;
  // Of a version that wrote it later, it may be empty.
  return text !== '' && isAlive(Number(text));
}

export function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
