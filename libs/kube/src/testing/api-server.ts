import { EventEmitter, once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { type IdentityTexts, selfSigned } from '@isthmus/certificates';
import type { KubeConnection } from '../connection.ts';
import type { Lease } from '../lease.ts';

const LEASES = /^\/apis\/coordination\.k8s\.io\/v1\/namespaces\/([^/]+)\/leases(?:\/([^/]+))?$/;

const COST = 'controller.kubernetes.io/pod-deletion-cost';

/** The path at which the pod `agent-1` in `isthmus-agent` gets its deletion cost. */
export const PATCHED_POD = '/api/v1/namespaces/isthmus-agent/pods/agent-1/status';

/** Handles a request instead of the server, to inject faults. Returns false to let the server answer. */
type Intercept = (request: IncomingMessage, response: ServerResponse) => boolean;

interface AppliedPod {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly annotations: Readonly<Record<string, string>> };
}

interface Seen {
  readonly call: string;
  readonly body: unknown;
}

/** The part of an API server that tokens and leases need, over TLS, with real optimistic concurrency and real watches. */
export class FakeApiServer implements AsyncDisposable {
  readonly identity: IdentityTexts;
  readonly client: IdentityTexts;
  /** The bearer token that may do everything. */
  token = 'secret';
  /** Answers to TokenReviews: the status for each reviewed token. */
  readonly reviews = new Map<string, unknown>();
  readonly leases = new Map<string, Lease>();
  /** By the path of the pod's status: its deletion cost, and who has set it. */
  readonly costs = new Map<string, { readonly cost: string; readonly manager: string }>();
  readonly seen: Seen[] = [];
  intercept: Intercept = () => false;
  readonly #server: Server;
  readonly #changes = new EventEmitter<{ event: [type: string, lease: Lease] }>();
  /** What has changed, for watches that begin from before it. */
  readonly #events: { readonly type: string; readonly lease: Lease }[] = [];
  readonly #watches = new Set<ServerResponse>();
  #version = 100;

  private constructor(identity: IdentityTexts, client: IdentityTexts) {
    this.identity = identity;
    this.client = client;
    const tls = { ...identity, ca: client.cert, requestCert: true, rejectUnauthorized: false };
    this.#server = createServer(tls, (request, response) => void this.#serve(request, response));
    this.#changes.setMaxListeners(0);
  }

  static async start(): Promise<FakeApiServer> {
    const server = new FakeApiServer(await selfSigned('api-server'), await selfSigned('client'));
    server.#server.listen(0, '127.0.0.1');
    await once(server.#server, 'listening');
    return server;
  }

  get connection(): KubeConnection {
    const { port } = this.#server.address() as AddressInfo;
    const server = new URL(`https://127.0.0.1:${port}`);
    return { server, ca: this.identity.cert, token: this.token, insecureSkipTlsVerify: false };
  }

  /** `METHOD path` of every request so far. */
  get calls(): string[] {
    return this.seen.map(({ call }) => call);
  }

  put(lease: Lease): Lease {
    const { name } = lease.metadata;
    const type = this.leases.has(name) ? 'MODIFIED' : 'ADDED';
    const stored = { ...lease, metadata: { ...lease.metadata, resourceVersion: String(++this.#version) } };
    this.leases.set(name, stored);
    this.#tell(type, stored);
    return stored;
  }

  remove(name: string): void {
    const lease = this.leases.get(name);
    if (!lease || !this.leases.delete(name)) return;
    const metadata = { ...lease.metadata, resourceVersion: String(++this.#version) };
    this.#tell('DELETED', { ...lease, metadata });
  }

  #tell(type: string, lease: Lease): void {
    this.#events.push({ type, lease });
    this.#changes.emit('event', type, lease);
  }

  /** Ends every watch with 410, as when etcd was compacted. */
  expire(): void {
    const gone = { code: 410, reason: 'Expired', message: 'too old resource version' };
    this.#changes.emit('event', 'ERROR', { ...gone, metadata: { name: '' } } as Lease);
  }

  /** Ends the connection of every watch. */
  cutWatches(): void {
    for (const response of this.#watches) response.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '', 'https://api');
    try {
      let text = '';
      for await (const chunk of request.setEncoding('utf8')) text += chunk;
      const body = text === '' ? undefined : JSON.parse(text);
      this.seen.push({
        call: `${request.method} ${url.pathname}${url.searchParams.has('watch') ? '?watch' : ''}`,
        body,
      });
      if (this.intercept(request, response)) return;
      const certified = (request.socket as TLSSocket).authorized;
      if (!certified && request.headers.authorization !== `Bearer ${this.token}`)
        failure(response, 401, 'Unauthorized');
      else if (request.method === 'PATCH') this.#apply(request, url, body, response);
      else if (url.pathname.endsWith('/tokenreviews')) this.#review(body, response);
      else if (url.pathname.endsWith('/events')) answer(response, 201, body);
      else this.#lease(request.method ?? '', url, body, response);
    } catch {
      response.destroy();
    }
  }

  /** Server-side apply of a pod's deletion cost: a value of another manager is a conflict, unless it is the same. */
  #apply({ headers }: IncomingMessage, url: URL, body: AppliedPod, response: ServerResponse): void {
    const manager = url.searchParams.get('fieldManager');
    const cost = body.metadata.annotations[COST];
    const before = this.costs.get(url.pathname);
    if (headers['content-type'] !== 'application/apply-patch+yaml') failure(response, 415, 'UnsupportedMediaType');
    else if (
      !manager ||
      cost === undefined ||
      body.kind !== 'Pod' ||
      !url.pathname.endsWith(`/${body.metadata.name}/status`)
    )
      failure(response, 422, 'Invalid');
    else if (before && before.manager !== manager && before.cost !== cost) failure(response, 409, 'Conflict');
    else {
      this.costs.set(url.pathname, { cost, manager });
      answer(response, 200, body);
    }
  }

  #review(body: { spec: { token: string } }, response: ServerResponse): void {
    answer(response, 201, { ...body, status: this.reviews.get(body.spec.token) ?? {} });
  }

  #lease(method: string, url: URL, body: Lease, response: ServerResponse): void {
    const name = LEASES.exec(url.pathname)?.[2];
    const stored = name === undefined ? undefined : this.leases.get(name);
    if (method === 'GET' && name === undefined) this.#list(url.searchParams, response);
    else if (method === 'POST') this.#create(body, response);
    else if (stored === undefined) failure(response, 404, 'NotFound');
    else if (method === 'GET') answer(response, 200, stored);
    else if (method === 'PUT') this.#update(stored, body, response);
    else this.#delete(stored, body, response);
  }

  #create(lease: Lease, response: ServerResponse): void {
    if (this.leases.has(lease.metadata.name)) failure(response, 409, 'AlreadyExists');
    else answer(response, 201, this.put(lease));
  }

  #update(stored: Lease, lease: Lease, response: ServerResponse): void {
    if (lease.metadata.resourceVersion !== stored.metadata.resourceVersion) failure(response, 409, 'Conflict');
    else answer(response, 200, this.put(lease));
  }

  #delete(stored: Lease, options: unknown, response: ServerResponse): void {
    const { preconditions } = (options ?? {}) as { preconditions?: { resourceVersion: string } };
    const expected = preconditions?.resourceVersion ?? stored.metadata.resourceVersion;
    if (expected !== stored.metadata.resourceVersion) {
      failure(response, 409, 'Conflict');
      return;
    }
    this.remove(stored.metadata.name);
    answer(response, 200, { status: 'Success' });
  }

  #list(query: URLSearchParams, response: ServerResponse): void {
    const wanted = (lease: Lease) => selects(query.get('labelSelector') ?? '', lease);
    if (!query.has('watch')) {
      const metadata = { resourceVersion: String(this.#version) };
      answer(response, 200, { metadata, items: [...this.leases.values()].filter(wanted) });
      return;
    }
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
    const send = (type: string, object: Lease) => {
      if (type === 'ERROR' || wanted(object)) response.write(`${JSON.stringify({ type, object })}\n`);
    };
    const from = Number(query.get('resourceVersion'));
    for (const { type, lease } of this.#events) if (Number(lease.metadata.resourceVersion) > from) send(type, lease);
    this.#changes.on('event', send);
    this.#watches.add(response);
    response.on('close', () => {
      this.#changes.off('event', send);
      this.#watches.delete(response);
    });
  }
}

function selects(selector: string, lease: Lease): boolean {
  return selector
    .split(',')
    .map((pair) => pair.split('='))
    .every(([key = '', value]) => lease.metadata.labels?.[key] === value);
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

export function failure(response: ServerResponse, status: number, reason: string, headers = {}): void {
  const body = JSON.stringify({
    kind: 'Status',
    status: 'Failure',
    reason,
    message: `${reason} said the test`,
    code: status,
  });
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);
}
