import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { connect, createServer } from 'node:tls';
import { CertificateAuthority, type IdentityTexts, LOOPBACK } from '@isthmus/certificates';
import { clientTls, RUNTIME, type TlsSettings } from '@isthmus/runtime';
import { changed } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { secureConnect, tlsServer } from './renewal.ts';

const DAY = 86_400_000;
const root = await CertificateAuthority.create('kubernetes', DAY);
const twin = await CertificateAuthority.create('kubernetes', DAY);
const middle = await root.subordinate('middle', DAY);
const shut = await root.subordinate('shut', DAY, 0);
const below = await shut.subordinate('below', DAY);

type Issue = Partial<Parameters<CertificateAuthority['issue']>[0]>;

const issued = (by: CertificateAuthority, more: Issue = {}) =>
  by.issue({ commonName: 'ann', validMs: DAY, hosts: LOOPBACK, uses: ['client', 'server'], ...more });

/** What is shown, the file of authorities on the other side, and why it is refused if it is. */
const CASES: readonly [what: string, shown: () => Promise<IdentityTexts>, ca: string, refused?: RegExp][] = [
  ['the issuing intermediate alone is the CA', () => issued(middle), middle.cert],
  ['two CAs have one name, and the second issued it', () => issued(twin), root.cert + twin.cert],
  ['its subject is its CA’s', () => issued(root, { commonName: 'kubernetes' }), root.cert],
  ['a block of the bundle is corrupt', () => issued(root), twin.cert.replace('MII', 'M!!') + root.cert],
  ['a block of the bundle is cut short', () => issued(root), `${twin.cert.slice(0, 200)}\n${root.cert}`],
  ['it has no extended key usage', () => issued(root, { uses: [] }), root.cert],
  [
    'an authority above it allows none below',
    () => chained(),
    shut.cert,
    /CN=shut cannot vouch for it: its path length of 0 is exceeded/,
  ],
  [
    'another CA has its CA’s name',
    () => issued(twin),
    root.cert,
    /there is one of that name, but its key did not sign it/,
  ],
  [
    'its CA is not in the file',
    () => issued(middle),
    twin.cert,
    /issued by CN=middle, which is not a trusted authority here/,
  ],
];

async function chained(): Promise<IdentityTexts> {
  const { cert, key } = await issued(below);
  return { cert: `${cert}\n${below.cert}`, key };
}

async function files(context: TestContext, texts: Record<string, string>): Promise<Record<string, string>> {
  const dir = await mkdtemp(join(tmpdir(), 'judged-'));
  context.after(() => rm(dir, { recursive: true }));
  const paths = Object.entries(texts).map(([name, text]) => [name, join(dir, name), text] as const);
  await Promise.all(paths.map(([, path, text]) => writeFile(path, text)));
  return Object.fromEntries(paths.map(([name, path]) => [name, path]));
}

for (const [what, shown, ca, refused] of CASES) {
  test(`a client is judged as Go does: ${what}`, async (context) => {
    const own = await issued(root);
    const settings: TlsSettings = await files(context, { ca, cert: own.cert, key: own.key });
    const told: string[] = [];
    const events = planeEvents();
    const server = tlsServer(
      { where: 'callers', files: settings, events },
      {},
      { accept: (socket) => socket.end('in'), refused: (_remote, { message }) => void told.push(message) },
    );
    context.after(() => server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...(await shown()) });
    const said = await textOf(socket);
    if (refused) assert.match(said, refused);
    else assert.equal(said, 'in');
    assert.equal(told.length, refused ? 1 : 0);
  });

  test(`a server is judged as Go does: ${what}`, async (context) => {
    let got = 0;
    const server = createServer(await shown(), (socket) => {
      socket
        .on('error', () => {})
        .on('data', (chunk) => {
          got += chunk.length;
          socket.end('out');
        });
    });
    context.after(() => server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const { socket, done } = secureConnect({ port, host: '127.0.0.1' }, clientTls({ ca }), ['127.0.0.1']);
    // A token, for one, that is written before it is known who the server is.
    socket.write('secret');
    const outcome = await done.then(
      () => 'in',
      (error: Error) => error.message,
    );
    if (!refused) assert.equal(outcome, 'in');
    else assert.match(outcome, refused);
    assert.equal(await textOf(socket), refused ? '' : 'out');
    assert.equal(got, refused ? 0 : 6, 'bytes that the server got');
  });
}

test('a client shows a key as people have it: behind a byte order mark, with blanks in front of lines', async () => {
  const { cert, key } = await issued(root);
  for (const each of [`\ufeff${key}`, key.replaceAll(/^/gm, '  '), Buffer.from(`\ufeff${key}`)])
    assert.ok(clientTls({ cert, key: each, ca: root.cert }).secureContext);
});

test('a block that is skipped is named, and authorities that change count from the next connection on', async (context) => {
  using _ = changed(RUNTIME, { certificateLookMs: 50 });
  const own = await issued(root);
  const settings = await files(context, {
    ca: twin.cert + root.cert.replace('MII', 'M!!'),
    cert: own.cert,
    key: own.key,
  });
  const events = planeEvents();
  const skipped: string[] = [];
  events.on('certificate:failure', (_where, _files, error) => void skipped.push(error?.message ?? 'well'));
  const server = tlsServer(
    { where: 'callers', files: settings, events },
    {},
    { accept: (socket) => socket.end('in'), refused() {} },
  );
  context.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const identity = await issued(root);
  const answer = () => textOf(connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...identity }));
  assert.match(await answer(), /not a trusted authority here/);
  assert.match(skipped.join(), /ca: certificate 2 of 2: its PEM block is damaged, or has no end/);
  // What was refused is taken as soon as its authority is there.
  await writeFile(settings.ca ?? '', twin.cert + root.cert);
  const end = performance.now() + 20_000;
  for (let said = ''; said !== 'in'; said = await answer()) assert.ok(performance.now() < end, said);
});

async function textOf(socket: Socket): Promise<string> {
  let text = '';
  socket
    .on('error', () => {})
    .on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  return text;
}
