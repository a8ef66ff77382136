import { type ClientRequest, get as httpGet, type IncomingMessage } from 'node:http';
import { get as httpsGet } from 'node:https';
import { httpsAgent } from '@isthmus/runtime';

/** How long the whole answer may take, in milliseconds. */
const FETCH_TIMEOUT_MS = 5000;

/** The longest JWKS, in bytes. Twenty keys take 10 KB. */
const LONGEST_JWKS = 1024 * 1024;

export interface KeysUrl {
  readonly url: string;
  /** The CA bundle that verifies it, PEM. Unset: the system's. */
  readonly ca?: string;
}

/** Fetches what an issuer publishes. Follows no redirect, because the file says whom to trust. */
export async function fetchKeys({ url, ca }: KeysUrl, timeout = FETCH_TIMEOUT_MS): Promise<string> {
  // The connection is closed with the request. Otherwise it would stay open until the next fetch, minutes later.
  const options = { headers: { accept: 'application/json', 'user-agent': 'isthmus' } };
  const request = url.startsWith('https:')
    ? httpsGet(url, { ...options, agent: httpsAgent({ ca }, [new URL(url).hostname]) })
    : httpGet(url, { ...options, agent: false });
  const late = setTimeout(() => request.destroy(new Error(`no answer within ${timeout / 1000} s`)), timeout);
  try {
    return await bodyOf(await headOf(request), request);
  } finally {
    clearTimeout(late);
    request.destroy();
  }
}

function headOf(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.on('error', reject);
    request.on('response', (response) => {
      const { statusCode = 0, headers } = response;
      if (statusCode === 200) resolve(response);
      else if (headers.location === undefined) reject(new Error(`it answered with status ${statusCode}`));
      else reject(new Error(`it redirects to ${headers.location}: put the URL into the file that answers itself`));
    });
  });
}

function bodyOf(response: IncomingMessage, request: ClientRequest): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    response.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length > LONGEST_JWKS) request.destroy(new Error(`the answer is longer than ${LONGEST_JWKS} bytes`));
    });
    request.on('error', reject);
    response.on('error', reject);
    response.on('close', () => reject(new Error('the answer ended too early')));
    response.on('end', () => resolve(Buffer.concat(chunks).toString('utf8')));
  });
}
