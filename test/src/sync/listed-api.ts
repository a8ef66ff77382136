import { writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { type Scope, tempDir } from '../harness/index.ts';
import { serving } from './api-door.ts';

/** An object of the API, as JSON. */
type Text = string;

export type Kind = 'tenants' | 'secrets' | 'configmaps';

const PATHS: Readonly<Record<string, Kind>> = {
  '/apis/isthmus.dev/v1alpha1/tenants': 'tenants',
  '/api/v1/secrets': 'secrets',
  '/api/v1/configmaps': 'configmaps',
};

/** An API server that lists objects in pages and tells watches what it is told to, of more objects than an etcd would take in a test's time. */
export class ListedApi {
  kubeconfig = '';
  /** By kind: each object is made when it is asked for. */
  readonly objects: Record<Kind, (() => Text)[]> = { tenants: [], secrets: [], configmaps: [] };
  /** How many complete lists of a kind there were. */
  readonly lists: Record<Kind, number> = { tenants: 0, secrets: 0, configmaps: 0 };
  readonly #watches: Record<Kind, Set<ServerResponse>> = {
    tenants: new Set(),
    secrets: new Set(),
    configmaps: new Set(),
  };
  #version = 1_000_000;

  static async start(scope: Scope): Promise<ListedApi> {
    const api = new ListedApi();
    const server = await serving(scope, (request, response) => api.#serve(request, response));
    api.kubeconfig = join(await tempDir(scope), 'kubeconfig');
    const config = {
      ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'test' },
      clusters: [{ name: 'test', cluster: { server } }],
      users: [{ name: 'test', user: {} }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    };
    writeFileSync(api.kubeconfig, JSON.stringify(config));
    return api;
  }

  /** Adds objects, in the order in which they are listed. */
  add(kind: Kind, count: number, object: (index: number) => object): void {
    for (let index = 0; index < count; index++) {
      const made = () => JSON.stringify(versioned(object(index), index + 1));
      this.objects[kind].push(made);
    }
  }

  /** Deletes an object, and tells watches. */
  delete(kind: Kind, index: number): void {
    const [gone] = this.objects[kind].splice(index, 1);
    const object = versioned(JSON.parse(gone?.() ?? '{}'), ++this.#version);
    for (const each of this.#watches[kind]) each.write(`${JSON.stringify({ type: 'DELETED', object })}\n`);
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? '', 'http://api');
    const kind = PATHS[url.pathname];
    response.writeHead(200, { 'content-type': 'application/json' });
    if (!kind) return void response.end(JSON.stringify({ versions: [{ version: 'v1alpha1' }] }));
    if (!url.searchParams.has('watch')) return void response.end(this.#page(kind, url.searchParams));
    this.#watches[kind].add(response);
    response.once('close', () => this.#watches[kind].delete(response)).flushHeaders();
  }

  #page(kind: Kind, query: URLSearchParams): Text {
    const all = this.objects[kind];
    const [from, limit] = [Number(query.get('continue') ?? 0), Number(query.get('limit'))];
    const to = Math.min(all.length, from + limit);
    const items = all.slice(from, to).map((object) => object());
    if (to === all.length && limit > 1) this.lists[kind]++;
    const metadata = { resourceVersion: String(this.#version), ...(to < all.length && { continue: String(to) }) };
    return `{"metadata":${JSON.stringify(metadata)},"items":[${items.join()}]}`;
  }
}

function versioned(object: object, resourceVersion: number): object {
  const { metadata } = object as { metadata: object };
  return { ...object, metadata: { ...metadata, resourceVersion: String(resourceVersion) } };
}
