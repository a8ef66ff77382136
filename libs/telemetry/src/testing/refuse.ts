import type { ServerResponse } from 'node:http';

/** Answers for good what was left without an answer: an exporter would try for as long as it may, and its process would not end. */
export async function refuse(responses: readonly ServerResponse[]): Promise<void> {
  const open = responses.filter(({ destroyed }) => !destroyed);
  const closed = open.map((response) => new Promise((resolve) => response.once('close', resolve)));
  for (const response of open) response.writeHead(400).end();
  await Promise.all(closed);
}
