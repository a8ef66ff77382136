import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import tls from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { until } from '@isthmus/runtime/testing';
import { LinkClient, servePeers } from '@isthmus/transport';
import { type Ask, type GatewayLoss, planeEvents } from '@isthmus/tunnel';

const NAME = '0123456789abcdef';

const nothing: Ask = async function* () {};

/** A hub's peer port, and gateways that name their process. */
async function hub(context: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-'));
  context.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'peers');
  const [own, peer] = [await authority.peer(['hub']), await authority.peer(['gateway'])];
  const told: GatewayLoss[] = [];
  const server = await servePeers({
    host: '127.0.0.1',
    port: 0,
    tls: { ...own, ca: authority.cert },
    dial: () => Promise.reject(new Error('no dial was expected')),
    attach: () => Promise.reject(new Error('no attach was expected')),
    events: planeEvents(),
    answer: nothing,
    hungUp: (loss) => told.push(loss),
  });
  context.after(() => server.close());
  let members = 0;
  const connect = async (gatewayInstance?: string) => {
    const socket = tls.connect({
      host: '127.0.0.1',
      port: Number(server.address.split(':')[1]),
      cert: readFileSync(peer.cert),
      key: readFileSync(peer.key),
      ca: readFileSync(authority.cert),
      ALPNProtocols: ['h2'],
      checkServerIdentity: () => undefined,
    });
    await once(socket, 'secureConnect');
    const named = gatewayInstance !== undefined && { gatewayInstance };
    const member = { id: `member ${++members}`, answer: nothing };
    const link = new LinkClient({ socket, peer: 'hub', events: planeEvents(), member, ...named });
    await link.accepted({ timeout: 60_000 });
    await until(() => server.asked.includes(member.id), 'the link at the hub');
    return { link, socket };
  };
  const alone = () => until(() => server.asked.length === 0, 'no connection');
  return { connect, told, alone };
}

test('a hub tells of a gateway that closes its connection without a word', async (context) => {
  const { connect, told } = await hub(context);
  const { socket } = await connect(NAME);
  socket.destroy();
  await until(() => told.length > 0, 'a word of it');
  assert.deepEqual(told, [{ gateway: NAME, reset: false }]);
});

test('a hub tells of no gateway that has another link, says goodbye, or has no name', async (context) => {
  const { connect, told, alone } = await hub(context);
  const [first, second, nameless] = [await connect(NAME), await connect(NAME), await connect()];
  nameless.socket.destroy();
  first.socket.destroy();
  await first.link.closed;
  const third = await connect(NAME);
  assert.deepEqual(told, []);
  second.link.close();
  third.link.close();
  await alone();
  assert.deepEqual(told, []);
});
