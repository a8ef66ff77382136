import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { DEADLINE_MS } from '@isthmus/runtime/testing';

/** How long an exporter may take to read its answers, in milliseconds. */

/**
 * Gives open requests a final answer. Without it an exporter would retry for as long as it may, and its process would not end.
 * @throws AbortError if an exporter does not read its answer
 */
export async function refuse(responses: readonly ServerResponse[]): Promise<void> {
  const open = responses.filter(({ destroyed }) => !destroyed);
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const closed = open.map((response) => once(response, 'close', { signal }));
  for (const response of open) response.writeHead(400).end();
  await Promise.all(closed);
}
