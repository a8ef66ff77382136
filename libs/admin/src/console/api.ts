import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { adminApi } from '@isthmus/proto/admin';
import { onceClosed, wholeOf } from '@isthmus/runtime';
import { send } from '@isthmus/service';
import type { Method } from '../access/guard.ts';
import type { Visitor } from '../access/visitor.ts';
import type { AdminBackend } from '../backend.ts';
import { exhausted, invalid } from '../calls/messages.ts';
import { ADMIN } from '../defaults.ts';
import { changesNothing, faultOf, isStream, JsonCalls, methodNamed } from '../json-calls.ts';
import { SAFE_HEADERS } from './page.ts';

/** Reads a request's body as text. @throws ServerError */
export async function readBody(request: IncomingMessage): Promise<string> {
  const late = setTimeout(
    () => request.destroy(new Error(`no whole request within ${ADMIN.bodyMs / 1000} s`)),
    ADMIN.bodyMs,
  );
  try {
    const tooLong = () => exhausted(`the request is longer than ${ADMIN.bodyBytes} bytes`);
    return new TextDecoder('utf-8', { fatal: true }).decode(await wholeOf(request, ADMIN.bodyBytes, tooLong));
  } catch (error) {
    throw error instanceof TypeError ? invalid('the request is no UTF-8') : error;
  } finally {
    clearTimeout(late);
  }
}

/** The path of the methods, below that of the console. */
const METHODS_PATH = `${adminApi.AdminDefinition.fullName}/`;

/** Answers methods of the admin RPC in JSON, as Connect's protocol has it for single answers. Streams are a line of JSON for each. */
export class JsonRpc {
  readonly #calls: JsonCalls;

  constructor(backend: AdminBackend) {
    this.#calls = new JsonCalls(backend);
  }

  /** @param path `isthmus.admin.v1.Admin/GetStatus` */
  async serve(request: IncomingMessage, response: ServerResponse, path: string, visitor: Visitor): Promise<void> {
    const gone = new AbortController();
    onceClosed(response, () => gone.abort());
    try {
      const method = methodNamed(path.startsWith(METHODS_PATH) ? path.slice(METHODS_PATH.length) : path);
      const answers = this.#calls.call(method, await messageOf(request, method), visitor, gone.signal);
      if (isStream(method)) await sendLines(response, answers, gone.signal);
      else for await (const answer of answers) await send(response, { status: 200, ...json(JSON.stringify(answer)) });
    } catch (error) {
      if (gone.signal.aborted) return;
      const { status, fault } = faultOf(error);
      const text = JSON.stringify(fault);
      if (response.headersSent) response.end(`${text}\n`);
      else await send(response, { status, ...json(text) });
    }
  }
}

/** Returns the request's message, not checked yet. */
async function messageOf(request: IncomingMessage, method: Method): Promise<unknown> {
  let text: string;
  if (request.method === 'GET' && changesNothing(method)) {
    text = new URL(request.url ?? '', 'http://host').searchParams.get('message') ?? '{}';
  } else {
    // Another type would let a form of any page ask.
    const type = request.headers['content-type']?.split(';')[0]?.trim().toLowerCase();
    if (request.method !== 'POST' || type !== 'application/json') {
      throw invalid('ask with POST and content-type application/json; methods that change nothing also answer GET');
    }
    text = await readBody(request);
  }
  try {
    return JSON.parse(text);
  } catch {
    throw invalid('the message is no JSON');
  }
}

/** Sends a line of JSON for each answer, and empty ones as a sign of life: nobody may be dialling, but the reader wants to know that it is connected. */
export async function sendLines(
  response: ServerResponse,
  answers: AsyncIterable<object>,
  signal: AbortSignal,
): Promise<void> {
  const begin = () => {
    if (!response.headersSent) response.writeHead(200, { ...SAFE_HEADERS, 'content-type': 'application/x-ndjson' });
  };
  const beat = () => {
    begin();
    if (!response.writableNeedDrain) response.write('\n');
  };
  const heartbeat = setInterval(beat, ADMIN.heartbeatMs);
  const first = setImmediate(beat);
  try {
    for await (const answer of answers) {
      begin();
      if (!response.write(`${JSON.stringify(answer)}\n`)) await once(response, 'drain', { signal });
    }
    begin();
    response.end();
  } finally {
    clearImmediate(first);
    clearInterval(heartbeat);
  }
}

function json(body: string) {
  return { body, headers: { ...SAFE_HEADERS, 'content-type': 'application/json' } };
}
