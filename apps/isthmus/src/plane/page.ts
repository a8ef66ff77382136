import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import type { AdminClientTls } from '@isthmus/admin/client';
import { ADMIN_SERVER_NAME, socketPathOf } from '@isthmus/admin/place';
import { httpsAgent } from '@isthmus/runtime';
import { parseDestination } from '@isthmus/tunnel';

/** A page of metrics with a thousand series is 200 kB. */
const MAX_BYTES = 32 * 1024 * 1024;

/** Sends a GET to an admin port, over HTTP or mutual TLS. */
export function readPage(
  address: string,
  path: string,
  { tls, signal }: { readonly tls?: AdminClientTls | undefined; readonly signal: AbortSignal },
): Promise<string> {
  const socketPath = socketPathOf(address);
  const place = socketPath === undefined ? parseDestination(address) : { host: 'localhost', socketPath };
  // In plain text, the port answers to no name but this one: any other could be that of a page on the web.
  const options = { ...place, path, signal, ...(!tls && { headers: { host: 'localhost' } }) };
  return new Promise((resolve, reject) => {
    const answered = (response: IncomingMessage) => {
      if (response.statusCode === 200) textOf(response).then(resolve, reject);
      else reject(new Error(`HTTP status ${response.statusCode} for ${path}`));
    };
    const request =
      tls && socketPath === undefined
        ? getHttps({ ...options, agent: httpsAgent(tls, [place.host, ADMIN_SERVER_NAME]) }, answered)
        : getHttp({ ...options, agent: false }, answered);
    request.on('error', reject);
  });
}

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_BYTES) throw new Error(`more than ${MAX_BYTES / 1024 / 1024} MiB`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
