import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { httpsAgent, lookupName } from '@isthmus/runtime';
import type { KubeConnection } from './connection.ts';

/** One request to an API server. */
export interface KubeCall {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Path of the API, without the server's own prefix: `/apis/...`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** Sent as JSON, which every API server accepts whatever `--kube-api-content-type` says. */
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

/** A list of 10,000 leases is about 6 MB. A body above this limit is not meant for this client. */
export const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** Connections per API server, both in use and kept open. */
const MAX_SOCKETS = 16;

/** The open connections that belong to one set of credentials. */
export interface ConnectionPool {
  readonly connection: KubeConnection;
  readonly agent: HttpAgent | HttpsAgent;
}

export function openPool(connection: KubeConnection): ConnectionPool {
  const limits = { keepAlive: true, maxSockets: MAX_SOCKETS, maxFreeSockets: 2, lookup: lookupName };
  if (connection.server.protocol === 'http:') return { connection, agent: new HttpAgent(limits) };
  const { ca, cert, key, serverName, insecureSkipTlsVerify } = connection;
  const name = serverName ?? connection.server.hostname.replace(/^\[(.*)\]$/, '$1');
  if (insecureSkipTlsVerify)
    return { connection, agent: new HttpsAgent({ ...limits, cert, key, servername: name, rejectUnauthorized: false }) };
  return { connection, agent: httpsAgent({ ca, cert, key }, [name], limits) };
}

/** Sends a call and returns the head of the answer. The body is still to be read. */
export async function exchange(pool: ConnectionPool, call: KubeCall, signal: AbortSignal): Promise<IncomingMessage> {
  const { server, token } = pool.connection;
  const url = new URL(server.pathname.replace(/\/$/, '') + call.path, server);
  for (const [name, value] of Object.entries(call.query ?? {})) url.searchParams.set(name, value);
  const body = call.body === undefined ? undefined : JSON.stringify(call.body);
  const headers = {
    accept: 'application/json',
    'user-agent': 'isthmus',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
  };
  const request = server.protocol === 'http:' ? httpRequest : httpsRequest;
  const sent = request(url, { method: call.method, headers, agent: pool.agent });
  sent.end(body);
  return headOf(sent, signal);
}

/**
 * Returns the head of the answer. The signal ends the request and the body. This is done by hand, because Deno 2.9 does not always obey
 * a request's signal, and never in the body.
 */
function headOf(request: ClientRequest, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    let response: IncomingMessage | undefined;
    const abort = () => {
      const error = new Error('aborted');
      request.destroy(error);
      response?.destroy(error);
      reject(error);
    };
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    request.on('error', reject);
    request.on('response', (answer) => {
      response = answer;
      if (signal.aborted) answer.destroy();
      else resolve(answer);
    });
  });
}

/** Returns the whole body as text. Rejects if the connection ends early or the body is too long. */
export async function readBody(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_BODY_BYTES) throw new Error(`the answer is longer than ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
