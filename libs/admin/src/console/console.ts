import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PageFiles } from '@isthmus/console';
import { BAD_TARGET, type Page, send, urlOf } from '@isthmus/service';
import { inWords } from '@isthmus/tunnel';
import { faultOfVisitor, type Visitor, visitorOf } from '../access/visitor.ts';
import type { AdminBackend } from '../backend.ts';
import { SAFE_HEADERS, sendFile } from './page.ts';

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

const OFF = 'the console is off here: --console=on turns it on';
const UNTRUSTED =
  'the console works only on a loopback address or with mutual TLS: set --admin-server-cert, --admin-server-key and --admin-ca-cert';

/** The console's page, below /console/. */
export class Console {
  readonly #options: ConsoleOptions;
  readonly #reached: Reached;
  readonly #backend: AdminBackend;

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
    const files = await this.#page(visitor);
    const file = name || 'index.html';
    return sendFile(request, response, Object.hasOwn(files, file) ? files[file] : undefined);
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

  async #page({ principal }: Visitor): Promise<PageFiles> {
    const { traceUrl } = this.#options;
    const { pageFiles } = await import('@isthmus/console');
    const { memberId: member } = this.#backend.identity;
    const settings = JSON.stringify({ traceUrl, tenant: principal?.tenant ?? '', member });
    return { ...(await pageFiles()), 'settings.json': { type: 'application/json', body: settings } };
  }
}
