import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test from 'node:test';
import { promisify } from 'node:util';
import { createDialer, DialError } from '@isthmus/client';
import { echo, refused, scoped, split, tempDir, web, within } from '../harness/index.ts';
import { onDeno, ROOT } from '../harness/runtime.ts';

const BIN = `${ROOT}node_modules/.bin`;
const RUN_MS = 120_000;

test(
  'a client dials through real gateways by mTLS: tunnels, agents, fetch, errors, and another gateway when one is killed',
  scoped(async (scope) => {
    const { trust, gateways } = await split(scope, { hubs: 1 });
    const [ca, cert, key] = [trust.callers.cert, trust.caller.cert, trust.caller.key].map((path) => readFileSync(path));
    const urls = gateways.map(({ mtls }) => `https://127.0.0.1:${mtls.port}`);
    const credentials = { cert, key } as { cert: Buffer; key: Buffer };
    const dialer = createDialer({ gateway: urls, ca: ca as Buffer, credentials });

    const echoes = await echo(scope);
    const tunnel = await dialer.dial('127.0.0.1', echoes.port);
    tunnel.end('there and back');
    assert.equal(await within(text(tunnel)), 'there and back');

    const plain = await web(scope, 'plain\n');
    const agent = dialer.httpAgent();
    scope.defer(() => agent.destroy());
    const bodies = [];
    for (let request = 0; request < 2; request++) bodies.push(await got(`http://${plain.authority}/`, agent));
    assert.deepEqual([bodies, plain.accepted], [['plain\n', 'plain\n'], 1]);

    const own = await trust.callers.server();
    const secure = createServer({ cert: readFileSync(own.cert), key: readFileSync(own.key) }, (_, response) => {
      response.end('secure\n');
    });
    scope.defer(() => secure.close().closeAllConnections());
    await new Promise<void>((resolve) => secure.listen(0, '127.0.0.1', resolve));
    const { port } = secure.address() as AddressInfo;
    const https = dialer.httpsAgent({ ca: ca as Buffer });
    scope.defer(() => https.destroy());
    assert.equal(await got(`https://localhost:${port}/`, https), 'secure\n');
    if (!onDeno) {
      const dispatcher = dialer.dispatcher({ ca: ca as Buffer }) as { destroy?: () => unknown };
      scope.defer(() => dispatcher.destroy?.());
      const init: object = { dispatcher };
      for (const url of [`https://localhost:${port}/`, `http://${plain.authority}/`])
        assert.match(await (await fetch(url, init)).text(), /^(secure|plain)\n$/);
    }

    const nobody = await failure(dialer.dial('127.0.0.1', Number((await refused()).split(':')[1])));
    assert.deepEqual([nobody.code, nobody.status, nobody.retryable], ['connection_refused', 502, false]);
    assert.match(nobody.message, /^dial tcp 127\.0\.0\.1:\d+: connect: connection refused$/);
    const nameless = await failure(createDialer({ gateway: urls, ca: ca as Buffer }).dial('127.0.0.1', 1));
    assert.equal(nameless.code, 'http_request_denied', nameless.message);

    const folder = await installed(await tempDir(scope));
    const env = { GATEWAYS: urls.join(), CA: trust.callers.cert, CERT: trust.caller.cert, KEY: trust.caller.key };
    const readme = readFileSync(join(folder, 'node_modules/@isthmus/client/README.md'), 'utf8');
    const examples = [...readme.matchAll(/```js\n([\s\S]*?)```/g)].map(([, code]) => code);
    assert.equal(examples.length, 3);
    const run = async (program: string, ...args: readonly string[]) => {
      const to = { HOST: '127.0.0.1', PORT: `${plain.port}`, FORCE_COLOR: undefined, NO_COLOR: '1' };
      const options = { cwd: folder, env: { ...process.env, ...env, ...to }, timeout: RUN_MS };
      return (await promisify(execFile)(program, args, options)).stdout.trim().split('\n').sort();
    };
    writeFileSync(join(folder, 'all.mjs'), examples.join('\n'));
    writeFileSync(join(folder, 'sockets.mjs'), examples.slice(0, 2).join('\n'));
    if (!onDeno) assert.deepEqual(await run(process.execPath, 'all.mjs'), ['200', '200', 'HTTP/1.1 200 OK']);
    const deno = join(BIN, 'deno');
    if (existsSync(deno)) assert.deepEqual(await run(deno, 'run', '-A', 'sockets.mjs'), ['200', 'HTTP/1.1 200 OK']);

    // The first one answered last, so it is asked first.
    await gateways[0]?.program.kill();
    const again = await dialer.dial('127.0.0.1', echoes.port);
    again.end('by the other');
    assert.equal(await within(text(again)), 'by the other');
  }),
);

function got(url: string, agent: import('node:http').Agent): Promise<string> {
  return within(
    new Promise<IncomingMessage>((resolve, reject) => {
      const protocol = new URL(url).protocol;
      get(url, { agent, protocol }, resolve).on('error', reject);
    }).then((response) => text(response)),
  );
}

/** The error of a dial. */
async function failure(dial: Promise<unknown>): Promise<DialError> {
  const error = await within(
    dial.then(
      () => undefined,
      (reason) => reason,
    ),
  );
  assert.ok(error instanceof DialError);
  return error;
}

/** Installs the package as others do, and returns where. It needs no other. */
async function installed(place: string): Promise<string> {
  const folder = join(place, 'empty');
  mkdirSync(folder);
  const { packAlone } = await import(`${ROOT}scripts/lib/npm-packages.mjs`);
  const file: string = await packAlone('libs/client', { to: place, scratch: join(place, 'scratch') });
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('npm_')));
  const args = ['install', '--offline', '--no-audit', '--no-fund', file];
  await promisify(execFile)('npm', args, { cwd: folder, env, timeout: RUN_MS });
  const manifest = JSON.parse(readFileSync(join(folder, 'node_modules/@isthmus/client/package.json'), 'utf8'));
  assert.deepEqual([manifest.private, manifest.dependencies], [undefined, undefined]);
  return folder;
}
