import { once } from 'node:events';
import type { ServerResponse } from 'node:http';

/** How long an exporter may take to take its answers, in milliseconds. */
const DEADLINE_MS = 60_000;

/**
 * Answers for good what was left without an answer: an exporter would try for as long as it may, and its process would not end.
 * @throws AbortError when one does not take its answer
 */
export async function refuse(responses: readonly ServerResponse[]): Promise<void> {
  const open = responses.filter(({ destroyed }) => !destroyed);
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const closed = open.map((response) => once(response, 'close', { signal }));
  for (const response of open) response.writeHead(400).end();
  await Promise.all(closed);
}
