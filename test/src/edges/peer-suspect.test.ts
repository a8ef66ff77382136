import assert from 'node:assert/strict';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { changed } from '@isthmus/runtime/testing';
import { PeerLinks } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import { WIRE } from '@isthmus/wire';
import { Authority, scoped, tempDir, within } from '../harness/index.ts';

test(
  'a hub that stood still before its link was open is not suspected for ever',
  scoped(async (scope) => {
    using _ = changed(WIRE, { checkEveryMs: 10, unknownRoundTripMs: 20 });
    const dir = await tempDir(scope);
    const path = `${dir}/hub.sock`;
    // The kernel accepts for a process that stands still.
    const sockets: Socket[] = [];
    const hub = net.createServer((socket) => void sockets.push(socket.on('error', () => {}))).listen(path);
    scope.defer(() => {
      hub.close();
      for (const socket of sockets) socket.destroy();
    });
    const events = planeEvents();
    const suspects = new Set<string>();
    // As `PlaneView` tells the directory.
    events.on('peer:suspect', (hubId, _address, is) => void (is ? suspects.add(hubId) : suspects.delete(hubId)));
    events.on('peer:close', (hubId) => void suspects.delete(hubId));
    const failed = new Promise<string>((resolve) =>
      events.once('peer:failure', (_hubId, _address, { message }) => resolve(message)),
    );
    const authority = await Authority.create(dir, 'peers');
    const { cert, key } = await authority.peer(['gateway']);
    const links = new PeerLinks({ tls: { cert, key, ca: authority.cert }, socketOf: () => path, events });
    scope.defer(() => links.close());
    links.sync([{ hubId: 'h', peerAddress: '127.0.0.1:1', incarnation: 1, draining: false }]);
    assert.match(await within(failed, { what: 'the end of the attempt' }), /silent/);
    assert.deepEqual([...suspects], []);
  }),
);
