import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import tls from 'node:tls';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { within } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { DialError, planeEvents } from '@isthmus/tunnel';
import { Callers, type CallersOptions } from '../callers.ts';
import { TRANSPORT } from '../defaults.ts';
import { anyoneOf } from '../listen.ts';

/** Callers at a port with TLS, whose last ones have as long as they need for their handshake, and next to nothing for their dial. */
async function gateway(context: TestContext, options: Partial<CallersOptions> = {}) {
  const authority = await CertificateAuthority.create('callers', 86_400_000);
  const own = await authority.issue({ commonName: 'gateway', validMs: 86_400_000, hosts: [...LOOPBACK] });
  const dir = mkdtempSync(join(tmpdir(), 'callers-'));
  context.after(() => rmSync(dir, { recursive: true }));
  const files = { cert: join(dir, 'crt'), key: join(dir, 'key') };
  writeFileSync(files.cert, own.cert);
  writeFileSync(files.key, own.key);
  const callers = new Callers({
    dial: () => Promise.reject(new DialError('connection_limit_reached', 'proxy is shutting down')),
    identifyCaller: anyoneOf('default'),
    events: planeEvents(),
    timeout: 60_000,
    keepaliveTime: 60_000,
    ...options,
  });
  context.after(() => callers.close());
  const listener = await callers.open({ address: { host: '127.0.0.1', port: 0 }, tls: files });
  const socket = net.connect(Number(listener.address.split(':').at(-1)), '127.0.0.1');
  context.after(() => socket.destroy());
  await once(socket, 'connect');
  await until(() => listener.unproven.size === 1, { what: 'a connection without its handshake' });
  const greet = async () => {
    const caller = tls.connect({ socket, ca: authority.cert, host: '127.0.0.1' });
    await once(caller, 'secureConnect');
    return caller;
  };
  return { callers, listener, greet };
}

test('a caller in its handshake gets its answer before a gateway ends, however long that takes', async (context) => {
  using _ = changed(TRANSPORT, { callerAnswerMs: 1, callerHandshakeMs: 60_000 });
  const { callers, greet } = await gateway(context);
  const stopped = callers.stop(true);
  assert.equal(await within(stopped, 20), false, 'it waits for the handshake');
  const caller = await greet();
  caller.write('CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n');
  assert.match(await text(caller), /^HTTP\/1\.1 503 .*\r\n/);
  await stopped;
});

test('a caller whose handshake is over, and that says nothing, is not waited for as one in its handshake', async (context) => {
  using _ = changed(TRANSPORT, { callerAnswerMs: 1, callerHandshakeMs: 60_000 });
  const refused: string[] = [];
  const events = planeEvents();
  events.on('refused', (_where, _remote, { message }) => void refused.push(message));
  const { callers, listener, greet } = await gateway(context, { events, identities: { enter() {} } });
  await greet();
  await until(() => [...listener.connections].length === 1, { what: 'the end of the handshake' });
  await callers.stop(true);
  assert.deepEqual(refused, [], 'the caller has not been silent for too long yet');
});
