import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { DEADLINE_MS } from '@isthmus/runtime/testing';

/**
 * Gives open requests a final answer. Otherwise the exporter would retry until its timeout and keep its process alive.
 * @throws AbortError if an exporter does not read its answer
 */
export async function refuse(responses: readonly ServerResponse[]): Promise<void> {
  const open = responses.filter(({ destroyed }) => !destroyed);
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const closed = open.map((response) => once(response, 'close', { signal }));
  for (const response of open) response.writeHead(400).end();
  await Promise.all(closed);
}
