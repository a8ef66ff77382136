import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { AdminJson, adminApi } from '@isthmus/proto/admin';
import { onceClosed, wholeOf } from '@isthmus/runtime';
import { send } from '@isthmus/service';
import { type CallContext, ServerError, Status } from 'nice-grpc';
import type { AnyMethod, Method } from '../access/guard.ts';
import type { Visitor } from '../access/visitor.ts';
import type { AdminBackend } from '../backend.ts';
import { exhausted, invalid } from '../calls/messages.ts';
import { ADMIN } from '../defaults.ts';
import { serviceFor } from '../service.ts';
import { SAFE_HEADERS } from './page.ts';

/** Reads a request's body as text. @throws ServerError */
async function readBody(request: IncomingMessage): Promise<string> {
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

/** https://connectrpc.com/docs/protocol: the names of the codes, and the statuses that go with them. */
const CODES: { readonly [code: number]: readonly [name: string, status: number] } = {
  [Status.INVALID_ARGUMENT]: ['invalid_argument', 400],
  [Status.NOT_FOUND]: ['not_found', 404],
  [Status.PERMISSION_DENIED]: ['permission_denied', 403],
  [Status.RESOURCE_EXHAUSTED]: ['resource_exhausted', 429],
  [Status.UNIMPLEMENTED]: ['unimplemented', 501],
  [Status.UNAVAILABLE]: ['unavailable', 503],
};

/** Answers methods of the admin RPC in JSON, as Connect's protocol has it for single answers. Streams are a line of JSON for each. */
export class JsonRpc {
  readonly #json = new AdminJson();
  readonly #backend: AdminBackend;

  constructor(backend: AdminBackend) {
    this.#backend = backend;
  }

  /** @param path `isthmus.admin.v1.Admin/GetStatus` */
  async serve(request: IncomingMessage, response: ServerResponse, path: string, visitor: Visitor): Promise<void> {
    const gone = new AbortController();
    onceClosed(response, () => gone.abort());
    try {
      const method = methodAt(path);
      const asked = this.#request(method, await messageOf(request, method));
      const service = serviceFor(visitor, this.#backend) as unknown as Record<string, AnyMethod>;
      const { responseStream } = adminApi.AdminDefinition.methods[method];
      const signal = responseStream ? gone.signal : AbortSignal.any([gone.signal, AbortSignal.timeout(ADMIN.callMs)]);
      const answers = (service[method] as AnyMethod)(asked, { signal } as CallContext);
      if (answers instanceof Promise) await send(response, { status: 200, ...json(textOf(method, await answers)) });
      else await stream(response, method, answers, signal);
    } catch (error) {
      if (gone.signal.aborted) return;
      const [status, text] = failureOf(error);
      if (response.headersSent) response.end(`${text}\n`);
      else await send(response, { status, ...json(text) });
    }
  }

  #request(method: Method, message: unknown): object {
    try {
      return this.#json.request(method, message);
    } catch (error) {
      // It names the field that is wrong.
      throw invalid((error as Error).message);
    }
  }
}

function methodAt(path: string): Method {
  const name = path.startsWith(METHODS_PATH) ? path.slice(METHODS_PATH.length) : path;
  const found = Object.entries(adminApi.AdminDefinition.methods).find(([, each]) => each.name === name);
  if (found) return found[0] as Method;
  throw new ServerError(Status.UNIMPLEMENTED, `the admin RPC has no method ${name.slice(0, 100)}`);
}

/** As Connect's protocol has it, only such methods answer a GET, which a page of another member may send. */
function changesNothing(method: Method): boolean {
  const { options } = adminApi.AdminDefinition.methods[method];
  return 'idempotencyLevel' in options && options.idempotencyLevel === 'NO_SIDE_EFFECTS';
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

async function stream(
  response: ServerResponse,
  method: Method,
  answers: AsyncIterable<unknown>,
  signal: AbortSignal,
): Promise<void> {
  const begin = () => {
    if (!response.headersSent) response.writeHead(200, { ...SAFE_HEADERS, 'content-type': 'application/x-ndjson' });
  };
  // Nobody may be dialling, but the page wants to know that it is connected.
  const beat = () => {
    begin();
    if (!response.writableNeedDrain) response.write('\n');
  };
  const heartbeat = setInterval(beat, ADMIN.heartbeatMs);
  const first = setImmediate(beat);
  try {
    for await (const answer of answers) {
      begin();
      if (!response.write(`${textOf(method, answer)}\n`)) await once(response, 'drain', { signal });
    }
    begin();
    response.end();
  } finally {
    clearImmediate(first);
    clearInterval(heartbeat);
  }
}

function textOf(method: Method, answer: unknown): string {
  return JSON.stringify(adminApi.AdminDefinition.methods[method].responseType.fromPartial(answer as object));
}

function json(body: string) {
  return { body, headers: { ...SAFE_HEADERS, 'content-type': 'application/json' } };
}

function failureOf(error: unknown): [status: number, text: string] {
  const known = error instanceof ServerError ? error : new ServerError(Status.INTERNAL, (error as Error).message);
  const [code, status] = CODES[known.code] ?? ['internal', 500];
  return [status, JSON.stringify({ code, message: known.details })];
}
