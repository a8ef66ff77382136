import type { ClientHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import {
  type AgentHello,
  type HubHello,
  type HubMember,
  LinkClient,
  LinkRefused,
  type Listener,
  listen,
  parseIdentifiers,
  remoteOf,
  upgradeServer,
} from '@isthmus/transport';
import type { HubOptions } from './hub.ts';
import { newSessionId, type SessionTable } from './sessions.ts';

/** Where agents connect: our agents' links and Go agents' packet streams, told apart by the first bytes. */
export class AgentPort {
  readonly #options: HubOptions;
  readonly #sessions: SessionTable;
  readonly #links = new Set<LinkClient>();
  #members: readonly HubMember[] = [];
  #listener: Listener | undefined;

  constructor(options: HubOptions, sessions: SessionTable) {
    this.#options = options;
    this.#sessions = sessions;
  }

  get address(): string {
    return this.#listener?.address ?? '';
  }

  async start(): Promise<void> {
    const { agents, observation } = this.#options;
    const { events } = observation;
    const upgrades = upgradeServer({
      admit: (hello) => this.#admit(hello),
      open: (session, socket, hello, answer) => this.#open(session, socket, hello, answer),
      refused: (socket, error) => events.emit('refused', 'agents', remoteOf(socket), error),
    });
    this.#listener = await listen({
      ...agents,
      name: 'agents',
      events,
      http1: (socket) => upgrades.accept(socket),
    });
  }

  membership(members: readonly HubMember[]): void {
    this.#members = members;
    for (const link of this.#links) link.send({ type: 'membership', hubs: members });
  }

  /** Takes no new agent. */
  async stop(): Promise<void> {
    await this.#listener?.stop();
  }

  async close(): Promise<void> {
    await this.#listener?.close();
  }

  /** How many servers an agent should look for: the override, or the plane's live hubs. */
  #serverCount(): number {
    return this.#options.serverCount ?? Math.max(1, this.#members.filter(({ draining }) => !draining).length);
  }

  async #admit(hello: AgentHello): Promise<HubHello> {
    const { hubId, plane } = this.#options;
    await this.#authenticate(hello.token);
    try {
      parseIdentifiers(hello.identifiers);
    } catch (error) {
      throw new LinkRefused(400, (error as Error).message);
    }
    return { hubId, sessionId: newSessionId(), plane, serverCount: this.#serverCount() };
  }

  async #authenticate(token: string | undefined): Promise<void> {
    const { authenticate } = this.#options;
    if (!authenticate) return;
    if (token === undefined) throw new LinkRefused(401, 'this hub wants a service account token');
    const verdict = await authenticate(token);
    if (!verdict.ok) throw new LinkRefused(403, verdict.message);
  }

  #open(session: ClientHttp2Session, socket: Socket, hello: AgentHello, { sessionId }: HubHello): void {
    const { tenant, agentId } = hello;
    const link = new LinkClient({
      session,
      socket,
      peer: `agent ${agentId}`,
      receive: ({ type }) => {
        if (type === 'drain') this.#sessions.drain(sessionId);
      },
    });
    this.#links.add(link);
    void link.closed.then(() => this.#links.delete(link));
    link.send({ type: 'membership', hubs: this.#members });
    const identifiers = parseIdentifiers(hello.identifiers);
    const identity = { tenant, agentId, identifiers, protocol: 'link' as const, remote: remoteOf(socket) };
    this.#sessions.add(sessionId, identity, link);
  }
}
