import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import tls from 'node:tls';
import { CertificateAuthority } from '@isthmus/certificates';
import { until } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { listen } from '../listen.ts';
import type { OtherCertificate } from './renewal.ts';

const DAY = 86_400_000;

const authority = await CertificateAuthority.create('servers', DAY);
const issue = (commonName: string) => authority.issue({ commonName, validMs: DAY, uses: ['server'] });

type Shown = ReturnType<OtherCertificate['current']>;

/** A port that shows `first`, at a program with a certificate of its own, and perhaps a key that is none for it. */
async function port(context: TestContext, first: Shown, key?: string) {
  const dir = await mkdtemp(join(tmpdir(), 'port-'));
  context.after(() => rm(dir, { recursive: true }));
  const [own, program] = [{ cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') }, await issue('program')];
  await Promise.all([writeFile(own.cert, program.cert), writeFile(own.key, key ?? program.key)]);
  let current = first;
  const listeners = new Set<() => void>();
  const changed = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  const events = planeEvents();
  const refused: string[] = [];
  events.on('refused', (where, _remote, error) => void refused.push(`${where}: ${error.message}`));
  const listener = await listen({
    ...{ address: { host: '127.0.0.1', port: 0 }, name: 'agents', events, asksOnly: true, others() {} },
    ...{ tls: own, instead: { current: () => current, changed } },
  });
  context.after(() => listener.close());
  const shown = async () => {
    const at = Number(listener.address.split(':').at(-1));
    const socket = tls.connect({
      host: '127.0.0.1',
      port: at,
      ca: authority.cert,
      checkServerIdentity: () => undefined,
    });
    await once(socket, 'secureConnect');
    const name = socket.getPeerCertificate().subject.CN;
    socket.destroy();
    return name;
  };
  const become = (next: Shown) => {
    current = next;
    for (const changed of listeners) changed();
  };
  return { shown, become, listener, listeners, refused, mend: () => writeFile(own.key, program.key) };
}

const TIMEOUT = { timeout: 60_000 };

test("a port shows a tenant's certificate from the moment of a change", TIMEOUT, async (context) => {
  const { shown, become, listener, listeners } = await port(context, await issue('first'));
  assert.equal(await shown(), 'first');
  become(await issue('second'));
  assert.equal(await shown(), 'second');
  await listener.close();
  await until(() => listeners.size === 0, { what: 'a closed port to follow no more' });
});

test("while the tenant has none, the port shows the program's", TIMEOUT, async (context) => {
  const { shown, become } = await port(context, undefined);
  assert.equal(await shown(), 'program');
  become(await issue('first'));
  assert.equal(await shown(), 'first');
  become(undefined);
  assert.equal(await shown(), 'program');
});

// Deno takes what cannot be used until a handshake fails with it.
const SKIP = { ...TIMEOUT, skip: 'Deno' in globalThis };

test('what cannot be used leaves what was shown, and is reported', SKIP, async (context) => {
  const first = await issue('first');
  const { shown, become, refused } = await port(context, first);
  become({ cert: first.cert, key: 'no key' });
  assert.equal(await shown(), 'first');
  assert.equal(refused.length, 1);
  assert.match(refused[0] ?? '', /^agents: ./);
  become(await issue('second'));
  assert.equal(await shown(), 'second');
});

// Deno's timers cannot be mocked one by one.
test("while the tenant has one, nobody looks at the program's, which may be none", SKIP, async (context) => {
  const every = context.mock.method(globalThis, 'setInterval').mock;
  const looks = () => every.calls.flatMap(({ arguments: [look, ms] }) => (ms === 2000 ? look : []));
  const first = await issue('first');
  const { shown, become, refused, mend } = await port(context, first, first.key);
  assert.deepEqual([await shown(), looks().length], ['first', 0]);
  become(undefined);
  assert.deepEqual([await shown(), looks().length], ['first', 1]);
  assert.match(refused.join(), /^agents: .*: the key does not match the certificate/);
  await mend();
  looks()[0]?.();
  assert.equal(await shown(), 'program');
  become(await issue('second'));
  assert.equal(await shown(), 'second');
});
