import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import tls from 'node:tls';
import { API_SERVER, LinkClient, requestLink } from '@isthmus/transport';
import { type Destination, DialAbort, type DialError, planeEvents } from '@isthmus/tunnel';
import { echo, type Identity, newTrust, type Scope, scoped, startServer, type Trust } from '../harness/index.ts';

const HELLO = { agentId: 'rogue', identifiers: '', version: '1', link: 'apiServer' } as const;

/** A link as an agent opens it for clients of its API server. Rejects with what the hub says against it. */
async function rogueLink(scope: Scope, trust: Trust, port: number, identity?: Identity): Promise<LinkClient> {
  const ca = readFileSync(trust.agents.cert);
  const shown = identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) };
  const socket = tls.connect({
    host: '127.0.0.1',
    port,
    servername: 'localhost',
    ca,
    ALPNProtocols: ['http/1.1'],
    ...shown,
  });
  scope.defer(() => void socket.destroy());
  await once(socket, 'secureConnect');
  socket.on('error', () => {});
  await requestLink(socket, 'hub', HELLO, 30_000);
  return new LinkClient({ socket, peer: 'hub', to: 'api-server', events: planeEvents() });
}

function request(destination: Destination) {
  const deadline = performance.now() + 30_000;
  return { id: '0123456789abcdef', tenant: 'default', destination, deadline, signal: new DialAbort() };
}

test(
  "an agent's link to its API server leads nowhere else, and an agent has no more of them than sessions",
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const secret = await echo(scope);
    const api = await echo(scope);
    const flags = { 'api-server': api.authority, 'max-agent-sessions': 2 };
    const { agentPort, program } = await startServer(scope, trust, flags);
    const identity = await trust.agents.client('rogue');
    const link = await rogueLink(scope, trust, agentPort, identity);
    const [host = '', port] = secret.authority.split(':');
    for (const destination of [
      { host, port: Number(port) },
      { host: 'api-server', port: Number(port) },
    ]) {
      const refused = ({ code }: DialError) => code === 'http_request_denied';
      await assert.rejects(link.dial(request(destination)), refused);
    }
    assert.equal(secret.accepted, 0);
    assert.equal((await program.metric('isthmus_refused_total')).get('{where="api-server link"}'), 2);
    const { end } = await link.dial(request(API_SERVER));
    end.stream.end('hello');
    const [bytes] = await once(end.stream, 'data');
    assert.equal(String(bytes), 'hello');

    await rogueLink(scope, trust, agentPort, identity);
    await assert.rejects(
      rogueLink(scope, trust, agentPort, identity),
      /rogue has 2 links to its API server here already/,
    );
    await assert.rejects(rogueLink(scope, trust, agentPort));
  }),
);
