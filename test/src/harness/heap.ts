import { once } from 'node:events';
import { within } from '@isthmus/runtime/testing';
import { residentBytes } from './processes.ts';
import type { Program } from './program.ts';

/** What `livingBytes` needs in the environment of a program. */
export const INSPECTED = { NODE_OPTIONS: '--use-openssl-ca --inspect=127.0.0.1:0' };

/** How long a collection of a busy machine may take, in milliseconds. */
const COLLECTED_MS = 30_000;

/**
 * Returns what a program has resident once V8 has collected its whole heap, in bytes: what lives, in the heap and beside it. By itself, V8 lets
 * garbage pile up to four times what lives.
 */
export async function livingBytes({ lines, pid }: Program): Promise<number> {
  const [url] = lines.flatMap((line) => /ws:\/\/\S+/.exec(line) ?? []);
  if (url === undefined) throw new Error('the program was not started with INSPECTED');
  const inspector = new WebSocket(url);
  try {
    await once(inspector, 'open');
    for (const id of [1, 2]) {
      inspector.send(JSON.stringify({ id, method: 'HeapProfiler.collectGarbage' }));
      await within(once(inspector, 'message'), { deadline: COLLECTED_MS, what: 'a collection' });
    }
    return residentBytes(pid);
  } finally {
    inspector.close();
  }
}
