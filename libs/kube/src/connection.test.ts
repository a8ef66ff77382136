import assert from 'node:assert/strict';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext, test } from 'node:test';
import { type IdentityTexts, selfSigned } from '@isthmus/certificates';
import { changed, until } from '@isthmus/runtime/testing';
import { stringify } from 'yaml';
import { kubeClient } from './client.ts';
import { type ExecPlugin, inClusterConnection, kubeconfigFile, runPlugin } from './connection.ts';
import { KUBE } from './defaults.ts';

describe('kubeconfig', () => {
  let dir: string;
  let identity: IdentityTexts;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-kubeconfig-'));
    identity = await selfSigned('test');
  });
  after(() => rm(dir, { recursive: true, force: true }));

  type Fields = Readonly<Record<string, unknown>>;

  function base64(text: string): string {
    return Buffer.from(text).toString('base64');
  }

  async function write(name: string, text: string): Promise<string> {
    await writeFile(join(dir, name), text);
    return join(dir, name);
  }

  function config(cluster: Fields, user: Fields): string {
    return stringify({
      'current-context': 'here',
      contexts: [
        { name: 'there', context: { cluster: 'x', user: 'x' } },
        { name: 'here', context: { cluster: 'c', user: 'u' } },
      ],
      clusters: [{ name: 'c', cluster: { server: 'https://[::1]:6443/prefix', ...cluster } }],
      users: [{ name: 'u', user }],
    });
  }

  async function read(text: string) {
    return kubeconfigFile(await write('config', text))();
  }

  describe('a kubeconfig', () => {
    it('gives the current context, with inline certificates', async () => {
      const connection = await read(
        config(
          { 'certificate-authority-data': base64(identity.cert), 'tls-server-name': 'kubernetes' },
          { 'client-certificate-data': base64(identity.cert), 'client-key-data': base64(identity.key) },
        ),
      );
      assert.deepEqual(connection, {
        server: new URL('https://[::1]:6443/prefix'),
        insecureSkipTlsVerify: false,
        ca: identity.cert,
        serverName: 'kubernetes',
        cert: identity.cert,
        key: identity.key,
      });
    });

    it('reads files relative to itself, and prefers a token file to a token', async () => {
      await write('ca.pem', identity.cert);
      await write('token', 'from-file\n');
      const connection = await read(
        config({ 'certificate-authority': 'ca.pem' }, { token: 'inline', tokenFile: 'token' }),
      );
      assert.equal(connection.ca, identity.cert);
      assert.equal(connection.token, 'from-file');
    });

    it('accepts a user without credentials and an unverified cluster', async () => {
      const connection = await read(config({ 'insecure-skip-tls-verify': true }, {}));
      assert.equal(connection.insecureSkipTlsVerify, true);
      assert.equal(connection.token, undefined);
    });

    const bad: readonly [name: string, text: () => string, message: RegExp][] = [
      [
        'an exec plugin',
        () => config({}, { exec: { command: 'aws' } }),
        /user u: exec is not allowed in a tenant's kubeconfig.*use a client certificate/,
      ],
      [
        'an auth provider',
        () => config({}, { 'auth-provider': { name: 'gcp' } }),
        /user u: auth-provider is gone from Kubernetes since 1\.26\. Use exec with the provider's plugin/,
      ],
      ['a password', () => config({}, { username: 'a', password: 'b' }), /user u: username is not supported/],
      ['a proxy', () => config({ 'proxy-url': 'http://p' }, {}), /cluster c: proxy-url is not supported/],
      [
        'a certificate without key',
        () => config({}, { 'client-certificate-data': base64(identity.cert) }),
        /user u: .* one is missing/,
      ],
      [
        'data that is no PEM',
        () => config({ 'certificate-authority-data': 'aGVsbG8=' }, {}),
        /cluster c: certificate-authority-data is not base64 of a PEM/,
      ],
      [
        'a PEM that is no certificate',
        () => config({ 'certificate-authority-data': base64(identity.key) }, {}),
        /certificate-authority is not a PEM certificate/,
      ],
      ['a file that is not there', () => config({ 'certificate-authority': 'none.pem' }, {}), /ENOENT.*none\.pem/],
      [
        'a bad server',
        () => config({ server: 'ftp://a' }, {}),
        /cluster c: server "ftp:\/\/a" is not an http\(s\) URL/,
      ],
      ['a token that is a number', () => config({}, { token: 7 }), /token is not a string/],
      ['no context', () => 'clusters: []', /the file has no current-context/],
      ['a context that does not exist', () => 'current-context: a\ncontexts: []', /contexts has no entry "a"/],
      ['a list', () => '- a', /the file is not a mapping/],
      ['what is not YAML', () => 'a: [', /kubeconfig .*config: /],
    ];
    for (const [name, text, message] of bad) {
      it(`rejects ${name}`, () => assert.rejects(read(text()), message));
    }

    it('names the missing file', async () => {
      await assert.rejects(kubeconfigFile('/nowhere/kubeconfig')(), /^Error: kubeconfig \/nowhere\/kubeconfig: ENOENT/);
    });
  });

  describe('in a cluster', () => {
    it('reads the address and service account of the pod', async () => {
      await write('token', 'pod-token\n');
      await write('ca.crt', identity.cert);
      const env = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '443' };
      assert.deepEqual(await inClusterConnection(env, dir)(), {
        server: new URL('https://[fd00::1]:443'),
        ca: identity.cert,
        token: 'pod-token',
        insecureSkipTlsVerify: false,
      });
    });

    it('reports that it is not in a cluster', async () => {
      await assert.rejects(inClusterConnection({}, dir)(), /no --kubeconfig, and not in a cluster/);
    });

    it('reports an empty token by its file', async () => {
      await write('token', '\n');
      const env = { KUBERNETES_SERVICE_HOST: '10.0.0.1', KUBERNETES_SERVICE_PORT: '443' };
      await assert.rejects(inClusterConnection(env, dir)(), /service account: token file .* is empty/);
    });
  });
});

const V1 = 'client.authentication.k8s.io/v1';

/** A plugin in sh, which counts its runs in the file `runs` beside it. */
async function plugin(context: TestContext, script: string) {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-exec-'));
  context.after(() => rm(dir, { recursive: true, force: true }));
  const command = join(dir, 'plugin');
  await writeFile(command, `#!/bin/sh\necho run >> ${dir}/runs\n${script}\n`);
  await chmod(command, 0o700);
  const runs = async () => (await readFile(join(dir, 'runs'), 'utf8')).split('\n').length - 1;
  return { dir, command, runs };
}

function answering(status: object, more: object = {}): string {
  return `echo '${JSON.stringify({ apiVersion: V1, kind: 'ExecCredential', status, ...more })}'`;
}

function of(command: string, more: Partial<ExecPlugin> = {}): ExecPlugin {
  return { apiVersion: V1, command, args: [], env: {}, installHint: '', ...more };
}

async function kubeconfig(dir: string, exec: object, server = 'https://10.0.0.1:6443'): Promise<string> {
  const path = join(dir, 'config');
  const text = stringify({
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
    clusters: [{ name: 'c', cluster: { server } }],
    users: [{ name: 'u', user: { exec: { apiVersion: V1, interactiveMode: 'Never', ...exec } } }],
  });
  await writeFile(path, text);
  return path;
}

test('a plugin gets its arguments as they are, its environment and what is asked of it', async (context) => {
  const script =
    'printf \'{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s|%s|%s"}}\' "$API" "$1" "$TENANT" "$(echo "$KUBERNETES_EXEC_INFO" | tr -d \'"\')"';
  const { dir } = await plugin(context, script);
  const path = await kubeconfig(dir, {
    command: './plugin',
    args: ['$(touch /nowhere); `id`'],
    env: [
      { name: 'TENANT', value: 'acme' },
      { name: 'API', value: V1 },
    ],
    provideClusterInfo: true,
  });
  const { token } = await kubeconfigFile(path, { exec: true })();
  assert.equal(
    token,
    `$(touch /nowhere); \`id\`|acme|{kind:ExecCredential,apiVersion:${V1},spec:{interactive:false,cluster:{server:https://10.0.0.1:6443,config:null}}}`,
  );
});

test('a plugin is asked again when its answer has expired, and not before', async (context) => {
  const ends = (ms: number) => new Date(Date.now() + ms).toISOString();
  for (const [expirationTimestamp, times] of [
    [ends(60_000), 1],
    [undefined, 1],
    [ends(-1), 2],
  ] as const) {
    const { dir, runs } = await plugin(context, answering({ token: 't', expirationTimestamp }));
    const source = kubeconfigFile(await kubeconfig(dir, { command: './plugin' }), { exec: true });
    assert.equal((await source()).token, 't');
    await source();
    assert.equal(await runs(), times);
  }
});

test('a client asks the plugin for another credential when the server rejects one', async (context) => {
  const script = `printf '{"apiVersion":"${V1}","kind":"ExecCredential","status":{"token":"t%s"}}' "$(wc -l < $(dirname $0)/runs | tr -d ' ')"`;
  const { dir, runs } = await plugin(context, script);
  const server = createServer(({ headers }, response) => {
    response.statusCode = headers.authorization === 'Bearer t2' ? 200 : 401;
    response.end('{}');
  }).listen(0, '127.0.0.1');
  context.after(() => server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const path = await kubeconfig(
    dir,
    { command: './plugin' },
    `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  );
  using client = await kubeClient({ source: kubeconfigFile(path, { exec: true }) });
  const call = { method: 'GET', path: '/version' } as const;
  await assert.rejects(client.request(call), /401/);
  assert.deepEqual(await client.request(call), {});
  assert.deepEqual(await client.request(call), {});
  assert.equal(await runs(), 2);
  server.closeAllConnections();
});

const FAILURES: readonly (readonly [does: string, script: string, says: RegExp])[] = [
  ['fails', 'echo geheim; echo log in first >&2; exit 3', /plugin: it ended with status 3: log in first$/],
  ['prints no JSON', 'echo geheim', /its answer is not JSON$/],
  ['prints something else', answering({ token: 'geheim' }, { kind: 'Secret' }), /not an ExecCredential of/],
  [
    'answers by another version',
    answering({ token: 'geheim' }, { apiVersion: `${V1}beta1` }),
    /not an ExecCredential of/,
  ],
  ['answers nothing', answering({}), /neither a token nor a certificate/],
  ['answers half a pair', answering({ clientKeyData: 'geheim' }), /go together, one is missing/],
  [
    'answers what is no certificate',
    answering({ clientKeyData: 'a', clientCertificateData: 'geheim' }),
    /not a PEM certificate/,
  ],
  [
    'has no clock',
    answering({ token: 'geheim', expirationTimestamp: 'soon' }),
    /expirationTimestamp in its answer is not a time/,
  ],
  [
    'prints without end',
    'while :; do echo geheimgeheimgeheimgeheimgeheimgeheimgeheim; done',
    /longer than 1048576 bytes/,
  ],
];
for (const [does, script, says] of FAILURES) {
  test(`a plugin that ${does} is an error that says so, and shows nothing of the answer`, async (context) => {
    using _times = changed(KUBE, { pluginMs: 60_000 });
    const { command } = await plugin(context, script);
    await assert.rejects(runPlugin(of(command)), (error: Error) => {
      assert.match(error.message, says);
      assert.doesNotMatch(error.message, /geheim/);
      return true;
    });
  });
}

test('a plugin that hangs is ended with all that it started', async (context) => {
  const { dir, command } = await plugin(context, 'sleep 600 & echo $! > $(dirname $0)/child; wait');
  using _times = changed(KUBE, { pluginMs: 5000 });
  const running = runPlugin(of(command));
  await assert.rejects(running, /no answer within 5 s/);
  const child = Number(await readFile(join(dir, 'child'), 'utf8'));
  // A zombie that nobody has waited for yet counts as ended.
  const ended = async () => / [ZX] /.test(await readFile(`/proc/${child}/stat`, 'utf8').catch(() => ' X '));
  await until(ended, { what: 'the end of what the plugin started' });
});

test('a plugin that is not installed is an error with its hint', async () => {
  const missing = of('isthmus-no-such-plugin', { installHint: 'apt install it' });
  await assert.rejects(
    runPlugin(missing),
    /exec plugin isthmus-no-such-plugin: there is no such program: apt install it/,
  );
});

const SETTINGS: readonly (readonly [object, RegExp])[] = [
  [{}, /user u: exec: command is missing/],
  [
    { command: 'a', apiVersion: 'client.authentication.k8s.io/v1alpha1' },
    /v1alpha1" is not supported: want .*\/v1 or .*v1beta1/,
  ],
  [{ command: 'a', interactiveMode: 'Always' }, /interactiveMode Always needs somebody at a terminal/],
  [{ command: 'a', args: 'b' }, /exec: args is not a list/],
  [{ command: 'a', args: [1] }, /exec: args is not a list of strings/],
  [{ command: 'a', env: [{ name: 'A' }] }, /exec: env wants a name and a value each/],
];
for (const [exec, says] of SETTINGS) {
  test(`exec with ${JSON.stringify(exec)} is refused`, async (context) => {
    const { dir } = await plugin(context, '');
    await assert.rejects(kubeconfigFile(await kubeconfig(dir, exec), { exec: true })(), says);
  });
}
