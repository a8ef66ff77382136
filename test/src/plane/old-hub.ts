import { readFileSync } from 'node:fs';
import { createServer, type TLSSocket } from 'node:tls';
import type { SessionRecord } from '@isthmus/directory';
import { redisRegistry } from '@isthmus/directory/redis';
import { heldBy } from '@isthmus/directory/testing';
import { encodeControl, LinkClient, parseIdentifiers, SocketEnd, servePeers, upgradeServer } from '@isthmus/transport';
import { type Attach, type Dial, DialError, planeEvents } from '@isthmus/tunnel';
import { freePort, type Scope, type Trust } from '../harness/index.ts';

/** How often agents hear of the plane's hubs, in milliseconds. */
const TELL_EVERY = 200;

export interface OldHubOptions {
  readonly trust: Trust;
  readonly redisUrl: string;
  /** Name the agent's process in the registry, as hubs do that know how to resume: gateways then try to attach here. */
  readonly namesInstances?: boolean;
}

export interface OldHub {
  readonly hubId: string;
  readonly agentPort: number;
  readonly sessions: ReadonlySet<string>;
  /** Attaches that gateways asked for. */
  readonly attaches: number;
  /** Loses all links at once, as a process does that dies. */
  die(): void;
}

/**
 * A hub of a version that does not know how tunnels are resumed: it passes on neither our fields of heads nor marks, and its sessions
 * name no process of the agent.
 */
export async function oldHub(
  scope: Scope,
  { trust, redisUrl, namesInstances = false }: OldHubOptions,
): Promise<OldHub> {
  const hubId = 'old';
  const [agentPort, peerPort] = [await freePort(), await freePort()];
  const events = planeEvents();
  const links = new Map<string, { readonly link: LinkClient; readonly agentId: string }>();
  const all = { hubId, agentPort, sessions: new Set<string>(), attaches: 0, die: () => {} };

  const dial: Dial = async ({ resumeOffer: _, ...request }) => {
    const { session = '' } = request;
    const to = links.get(session);
    if (!to) throw new DialError('destination_unavailable', `no session ${session}`, { retryable: true });
    const { end, timing } = await to.link.dial(request);
    return { end, timing, agentId: to.agentId, sessionId: session, hubId };
  };
  const attach: Attach = async () => {
    all.attaches++;
    throw new DialError('proxy_internal_error', 'answered with status 404', { retryable: true });
  };
  const { cert, key } = await trust.peers.peer(['hub']);
  const peers = await servePeers({
    host: '127.0.0.1',
    port: peerPort,
    tls: { cert, key, ca: trust.peers.cert },
    dial,
    attach,
    events,
  });
  scope.defer(() => peers.close());

  const registry = redisRegistry({ url: redisUrl, plane: 'test' });
  scope.defer(() => registry.close());
  const incarnation = Date.now();
  const addresses = { peerAddress: `127.0.0.1:${peerPort}`, agentAddress: `127.0.0.1:${agentPort}` };
  const registration = registry.register({ hubId, incarnation, zone: '', draining: false, ...addresses });

  let ids = 0;
  const upgrades = upgradeServer({
    admit: async () => ({
      hubId,
      sessionId: (++ids).toString(16).padStart(16, '0'),
      tenant: 'default',
      plane: 'test',
      serverCount: 2,
    }),
    open(socket, { agentId, identifiers: query, instance }, { sessionId }) {
      const link = new LinkClient({ socket, peer: `agent ${agentId}`, to: 'agent', events });
      links.set(sessionId, { link, agentId });
      all.sessions.add(sessionId);
      const { identifiers } = parseIdentifiers(query);
      const session: SessionRecord = {
        ...{ sessionId, tenant: 'default', agentId, identifiers, hubId, incarnation },
        ...{ version: 1, draining: false, since: Date.now() },
        ...(namesInstances && instance !== undefined && { instance }),
      };
      registration.announce(session);
      void link.closed.then(() => {
        links.delete(sessionId);
        all.sessions.delete(sessionId);
        registration.withdraw(sessionId, 2);
      });
    },
    refused: () => {},
    fault: (_socket, error) => {
      throw error;
    },
  });
  const tellAgents = async () => {
    const { hubs } = await heldBy(registry);
    const members = hubs.map(({ hubId, agentAddress, zone, draining, incarnation }) => {
      return { hubId, address: agentAddress, zone, draining, generation: incarnation };
    });
    const line = encodeControl({ type: 'membership', current: true, hubs: members });
    for (const { link } of links.values()) link.sendLine(line);
  };
  // What goes wrong here goes wrong again, and then the test misses its sessions.
  const telling = setInterval(() => void tellAgents().catch(() => {}), TELL_EVERY);
  scope.defer(() => clearInterval(telling));

  const shown = await trust.agents.server();
  const [serverCert, serverKey] = [readFileSync(shown.cert), readFileSync(shown.key)];
  const sockets = new Set<TLSSocket>();
  const server = createServer({ cert: serverCert, key: serverKey, ALPNProtocols: ['http/1.1'] }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).once('close', () => sockets.delete(socket));
    upgrades(new SocketEnd(socket), Buffer.alloc(0));
  });
  server.on('tlsClientError', (_error, socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(agentPort, '127.0.0.1', resolve));
  const die = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
    void peers.close();
  };
  scope.defer(die);
  return Object.assign(all, { die });
}
