import type { IncomingMessage } from 'node:http';
import { exhausted, invalid } from '../calls/refusals.ts';

/** The longest request is a reason of 500 characters and a few names. */
const MOST_BYTES = 64 * 1024;
const BODY_MS = 10_000;

/** Reads a request's body as text. @throws ServerError */
export async function readBody(request: IncomingMessage): Promise<string> {
  const late = setTimeout(() => request.destroy(new Error(`no whole request within ${BODY_MS / 1000} s`)), BODY_MS);
  try {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of request as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MOST_BYTES) throw exhausted(`the request is longer than ${MOST_BYTES} bytes`);
      chunks.push(chunk);
    }
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
  } catch (error) {
    throw error instanceof TypeError ? invalid('the request is no UTF-8') : error;
  } finally {
    clearTimeout(late);
  }
}
