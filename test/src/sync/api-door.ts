import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { type Scope, tempDir } from '../harness/index.ts';
import type { KubernetesApi } from './kubernetes-api.ts';

interface List {
  items: object[];
  metadata: { continue?: string };
}

/** Serves HTTP on loopback for as long as the scope is open. Returns the URL. */
export async function serving(scope: Scope, answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A way to an API server that can be told to answer otherwise. */
export class ApiDoor {
  /** For a client that goes this way. */
  kubeconfig = '';
  /** `METHOD PATH?QUERY` of all calls so far. */
  readonly calls: string[] = [];
  /** `STATUS METHOD PATH?QUERY` of what the API server has answered so far. */
  readonly answers: string[] = [];
  /** Why a call is refused: its status. */
  refuses: (call: string) => number | undefined = () => undefined;
  /** Changes the query of a list, and its answer. */
  asks: (query: URLSearchParams) => void = () => {};
  lists: (list: List) => void = () => {};
  /** Whether an event of a watch is passed on. */
  passes: (type: string) => boolean = () => true;
  /** Ends with the time when a call may go on. */
  holds: (call: string) => Promise<void> | undefined = () => undefined;
  readonly #address: string;
  readonly #watches = new Set<ServerResponse>();

  private constructor(address: string) {
    this.#address = address;
  }

  /** @param token of the client; default: the administrator's */
  static async open(scope: Scope, { address, kubeconfig }: KubernetesApi, token?: string): Promise<ApiDoor> {
    const door = new ApiDoor(address);
    const server = await serving(scope, (request, response) => void door.#serve(request, response));
    const config = JSON.parse(readFileSync(kubeconfig, 'utf8'));
    config.clusters[0].cluster = { server };
    if (token !== undefined) config.users[0].user = { token };
    door.kubeconfig = join(await tempDir(scope), 'kubeconfig');
    writeFileSync(door.kubeconfig, JSON.stringify(config));
    return door;
  }

  /** How many calls there were that a pattern matches. */
  count(pattern: RegExp): number {
    return this.calls.filter((call) => pattern.test(call)).length;
  }

  /** Ends all watches as an API server does that drains. */
  endWatches(): void {
    for (const each of this.#watches) each.end();
  }

  /** Ends all watches as an API server does that has forgotten their version. */
  expireWatches(): void {
    const object = { kind: 'Status', code: 410, reason: 'Expired', message: 'too old resource version', metadata: {} };
    for (const each of this.#watches) each.end(`${JSON.stringify({ type: 'ERROR', object })}\n`);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '', 'http://door');
    const [{ method = '' }, watch] = [request, url.searchParams.has('watch')];
    const call = `${method} ${request.url}`;
    this.calls.push(call);
    try {
      const body = await text(request);
      await this.holds(call);
      const refused = this.refuses(call);
      if (refused !== undefined) {
        const reason = { 403: 'Forbidden', 410: 'Expired' }[refused] ?? 'InternalError';
        const status = { kind: 'Status', status: 'Failure', code: refused, reason, message: 'said the door' };
        response.writeHead(refused, { 'content-type': 'application/json' }).end(JSON.stringify(status));
        return;
      }
      const isList = method === 'GET' && url.searchParams.has('limit');
      if (isList) this.asks(url.searchParams);
      const [host, port] = this.#address.split(':');
      const path = `${url.pathname}${url.search}`;
      const headers = { ...request.headers, host: this.#address };
      const sent = httpsRequest({ host, port, path, method, headers, rejectUnauthorized: false });
      response.once('close', () => sent.destroy());
      sent.end(body);
      const [answer] = (await once(sent, 'response')) as [IncomingMessage];
      this.answers.push(`${answer.statusCode} ${call}`);
      response.writeHead(answer.statusCode ?? 502, { 'content-type': 'application/json' }).flushHeaders();
      if (watch && answer.statusCode === 200) await this.#watch(answer, response);
      else response.end(isList && answer.statusCode === 200 ? this.#changed(await text(answer)) : await text(answer));
    } catch {
      response.destroy();
    }
  }

  #changed(answer: string): string {
    const list = JSON.parse(answer) as List;
    this.lists(list);
    return JSON.stringify(list);
  }

  async #watch(answer: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#watches.add(response);
    response.once('close', () => this.#watches.delete(response));
    for await (const line of createInterface({ input: answer }))
      if (!response.writableEnded && this.passes((JSON.parse(line) as { type: string }).type))
        response.write(`${line}\n`);
    response.end();
  }
}
