import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { planeEvents } from '@isthmus/tunnel';
import { PeerLinks } from './peers.ts';

test('a gateway whose files cannot be read leaves no connection at a hub', async (t) => {
  let connections = 0;
  const server = net.createServer((socket) => {
    connections++;
    socket.on('error', () => {});
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const events = planeEvents();
  const links = new PeerLinks({ tls: { ca: '/not/there.pem' }, events });
  t.after(() => {
    links.close();
    server.close();
  });
  const failed = new Promise<Error>(
    (resolve) => void events.once('peer:failure', (_hub, _at, error) => resolve(error)),
  );
  links.sync([{ hubId: 'h1', peerAddress: `127.0.0.1:${port}`, draining: false }]);
  assert.match((await failed).message, /not.there\.pem/);
  // Connections are accepted in their order.
  const last = net.connect(port, '127.0.0.1');
  await once(server, 'connection');
  last.destroy();
  assert.equal(connections, 1);
});
