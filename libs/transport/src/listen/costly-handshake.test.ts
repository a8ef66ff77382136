import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import tls, { type SecureVersion } from 'node:tls';
import { Authority, type CostlyKind, costlyChain } from '@isthmus/certificates/testing';
import { boundVerification, clientTlsOf, connectTls } from '@isthmus/runtime';
import { planeEvents } from '@isthmus/tunnel';
import { listen } from '../listen.ts';
import { secureConnect } from '../tls/renewal.ts';

const onDeno = 'Deno' in globalThis && 'Deno has bounds of its own';
const unbounded = onDeno || (boundVerification() ? false : 'this runtime verifies whatever a peer sends');
test('the Node that ships bounds what it costs to verify a peer', {
  skip: !/^2[6-9]\./.test(process.versions.node),
}, () => {
  assert.ok(boundVerification());
});

/** OpenSSL's own clients refuse to show such keys below this level. */
const ANY_KEY = 'DEFAULT:@SECLEVEL=0';
const COSTLY =
  /^the TLS handshake failed: its certificates would take too long to verify: at most 9 with 16 KiB together, with keys of RSA/;
const LONG = /^the TLS handshake failed: it sent more than 32 KiB of certificates/;

const chains: readonly [kind: CostlyKind, count: number, version: SecureVersion, refusal: RegExp][] = [
  ['rsa', 60, 'TLSv1.3', LONG],
  ['rsa', 60, 'TLSv1.2', LONG],
  ['rsa', 20, 'TLSv1.3', COSTLY],
  ['rsa', 1, 'TLSv1.3', COSTLY],
  ['rsa', 1, 'TLSv1.2', COSTLY],
  ['dsa', 2, 'TLSv1.3', COSTLY],
];
for (const [kind, count, maxVersion, refusal] of chains) {
  const what = `${count} costly certificates (${kind}, ${maxVersion})`;

  for (const asksOnly of [false, true]) {
    const port = asksOnly ? 'a port that only asks for certificates' : 'a port that requires certificates';
    test(`a client with ${what} is refused by name at ${port}`, { skip: unbounded }, async (context) => {
      const { port, refusals } = await listening(context, asksOnly);
      const secure = tls.createSecureContext({ ...costlyChain(count, kind), maxVersion, ciphers: ANY_KEY });
      const client = tls.connect({ port, host: '127.0.0.1', secureContext: secure, rejectUnauthorized: false });
      client.on('error', () => {}).resume();
      await new Promise((resolve) => client.on('close', resolve));
      assert.equal(refusals.length, 1);
      assert.match(refusals[0] as string, refusal);
    });
  }

  test(`a server with ${what} is refused by name`, { skip: unbounded }, async (context) => {
    const trusted = await Authority.create(directory(context), 'ca');
    const server = tls.createServer({ ...costlyChain(count, kind), maxVersion, ciphers: ANY_KEY });
    server.on('tlsClientError', () => {});
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    context.after(() => server.close());
    const { port } = server.address() as { port: number };
    const { done } = secureConnect({ port, host: '127.0.0.1' }, clientTlsOf({ ca: trusted.cert }), [
      '127.0.0.1',
      'isthmus-hub',
    ]);
    // Our clients judge what OpenSSL did not verify: whatever it is, nothing costly was computed.
    await assert.rejects(done, { message: refusal === LONG ? LONG : /^the server's certificate.* is refused: / });
  });
}

test('ordinary chains are verified as ever', { skip: unbounded }, async (context) => {
  const { port, refusals, authority } = await listening(context, false);
  const identity = await authority.client('caller');
  const client = connectTls({ port, host: '127.0.0.1' }, clientTlsOf({ ...identity, ca: authority.cert }), [
    '127.0.0.1',
  ]);
  client.end('hello');
  const [answer] = await once(client.setEncoding('utf8'), 'data');
  assert.equal(answer, 'welcome');
  assert.deepEqual(refusals, []);
});

async function listening(context: TestContext, asksOnly: boolean) {
  const authority = await Authority.create(directory(context), 'ca');
  const identity = await authority.server();
  const refusals: string[] = [];
  const events = planeEvents();
  events.on('refused', (_where, _remote, error) => refusals.push(error.message));
  const listener = await listen({
    address: { host: '127.0.0.1', port: 0 },
    tls: { ...identity, ca: authority.cert },
    asksOnly,
    others: ({ stream }) => void stream.end('welcome'),
    events,
    name: 'callers',
  });
  context.after(() => listener.close());
  return { port: Number(listener.address.split(':').at(-1)), refusals, authority };
}

function directory(context: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-costly-'));
  context.after(() => rmSync(dir, { recursive: true }));
  return dir;
}
