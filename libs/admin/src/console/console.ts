import type { IncomingMessage, ServerResponse } from 'node:http';
import { hostname } from 'node:os';
import type { PageFiles } from '@isthmus/console';
import { within } from '@isthmus/runtime';
import { BAD_TARGET, type Page, send, urlOf } from '@isthmus/service';
import { inWords } from '@isthmus/tunnel';
import { faultOfVisitor, type Visitor, visitorOf } from '../access/visitor.ts';
import type { AdminBackend } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import type { JsonRpc } from './api.ts';
import { type Asker, askerOf, FOREIGN, memberOrigins, type Port, SAFE_HEADERS, sendFile } from './page.ts';

export interface ConsoleOptions {
  readonly when: 'auto' | 'on' | 'off';
  /** With `{trace_id}`; empty for no links. */
  readonly traceUrl: string;
}

/** How the admin port is reached. */
export interface Reached {
  readonly tls: boolean;
  /** Only from this machine: a loopback address or a unix socket. */
  readonly local: boolean;
}

const PATH = '/console/';

/** The members were never asked for. */
const NEVER = { at: Number.NEGATIVE_INFINITY, members: Promise.resolve() };

const OFF = 'the console is off here: --console=on turns it on';
const UNTRUSTED =
  'the console works only on a loopback address or with mutual TLS: set --admin-server-cert, --admin-server-key and --admin-ca-cert';

/** The console below /console/: its page, and the admin RPC in JSON. */
export class Console {
  readonly #options: ConsoleOptions;
  readonly #reached: Reached;
  readonly #backend: AdminBackend;
  #membersAsked: { readonly at: number; readonly members: Promise<unknown> } = NEVER;
  #rpc: Promise<JsonRpc> | undefined;

  constructor(options: ConsoleOptions, reached: Reached, backend: AdminBackend) {
    this.#options = options;
    this.#reached = reached;
    this.#backend = backend;
  }

  /** Answers a request if it is for the console. @returns whether it is */
  accept(request: IncomingMessage, response: ServerResponse): boolean {
    if (!/^\/console(?=[/?]|$)/.test(request.url ?? '')) return false;
    this.#serve(request, response).catch((error) => {
      if (response.headersSent) response.destroy();
      else void send(response, { status: 500, body: `${inWords(error)}\n` });
    });
    return true;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const visitor = visitorOf(request.socket);
    const refusal = this.#refusal(visitor);
    if (refusal) return send(response, { ...refusal, body: `${refusal.body}\n`, headers: SAFE_HEADERS });
    const url = urlOf(request);
    if (!url) return send(response, BAD_TARGET);
    if (url.pathname === PATH.slice(0, -1))
      return send(response, { status: 301, body: '', headers: { location: PATH } });
    const name = url.pathname.slice(PATH.length);
    if (name.includes('/')) return this.#call(request, response, name, visitor);
    const { files, members } = await this.#page(visitor);
    return sendFile(
      request,
      response,
      Object.hasOwn(files, name || 'index.html') ? files[name || 'index.html'] : undefined,
      members,
    );
  }

  /** Why a request gets nothing. */
  #refusal(visitor: Visitor): Page | undefined {
    const { when } = this.#options;
    const { tls, local } = this.#reached;
    if (when === 'off' || (when === 'auto' && !local)) return { status: 404, body: OFF };
    if (!tls && !local) return { status: 403, body: UNTRUSTED };
    const fault = faultOfVisitor(visitor, this.#backend.tenants);
    return fault && { status: 403, body: fault.message };
  }

  async #call(request: IncomingMessage, response: ServerResponse, path: string, visitor: Visitor): Promise<void> {
    const asker = await this.#askerOf(request);
    if (!asker || (asker === 'member' && request.method !== 'GET')) {
      this.#backend.operated?.({ operator: visitor.operator, call: 'Console', outcome: 'refused', text: FOREIGN });
      return send(response, { status: 403, body: `${FOREIGN}\n`, headers: SAFE_HEADERS });
    }
    if (asker === 'member') {
      response.setHeader('access-control-allow-origin', request.headers.origin ?? '');
      response.setHeader('access-control-allow-credentials', 'true');
      response.setHeader('vary', 'origin');
    }
    // gRPC's libraries take 6 MB, which a process does without until an operator comes.
    this.#rpc ??= import('./api.ts').then(({ JsonRpc }) => new JsonRpc(this.#backend));
    return (await this.#rpc).serve(request, response, path, visitor);
  }

  async #page({ principal }: Visitor): Promise<{ readonly files: PageFiles; readonly members: string[] }> {
    const { traceUrl } = this.#options;
    const { pageFiles } = await import('@isthmus/console');
    // One that joined a moment ago is to be on the page too.
    await this.#askForMembers();
    const members = memberOrigins(this.#port());
    const settings = JSON.stringify({ traceUrl, tenant: principal?.tenant ?? '', members });
    const own = { 'settings.json': { type: 'application/json', body: settings } };
    return { files: { ...(await pageFiles()), ...own }, members };
  }

  /** The page may be of a member that joined a moment ago. */
  async #askerOf({ headers, method }: IncomingMessage): Promise<Asker | undefined> {
    const known = askerOf(headers, this.#port());
    if (known || method !== 'GET' || headers.origin === undefined) return known;
    await this.#askForMembers();
    return askerOf(headers, this.#port());
  }

  /** Asks the registry once for all who come within a second: foreign pages may ask as often as they like. */
  async #askForMembers(): Promise<void> {
    const now = performance.now();
    if (now - this.#membersAsked.at > ADMIN.membersMs) {
      const members = Promise.resolve(this.#backend.plane?.members());
      this.#membersAsked = { at: now, members: within(members, ADMIN.membersMs).catch(() => {}) };
    }
    await this.#membersAsked.members;
  }

  #port(): Port {
    return { tls: this.#reached.tls, members: this.#backend.plane?.lastMembers() ?? [], host: hostname() };
  }
}
