import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { createSecureContext } from 'node:tls';
import { type IdentityTexts, selfSigned } from '@isthmus/certificates';
import { keyPair } from '@isthmus/runtime/testing';
import { stringify } from 'yaml';
import { inClusterConnection, kubeconfigFile } from './connection.ts';

const ENCRYPTED = keyPair()
  .privateKey.export({ format: 'pem', type: 'pkcs8', cipher: 'aes-128-cbc', passphrase: 'x' })
  .toString();

describe('kubeconfig', () => {
  let dir: string;
  let identity: IdentityTexts;
  let other: IdentityTexts;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-kubeconfig-'));
    [identity, other] = [await selfSigned('test'), await selfSigned('other')];
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

    it('reads certificates and keys as people have them: behind a byte order mark, with blanks in front of lines', async () => {
      const { cert, key } = await read(
        config(
          { 'insecure-skip-tls-verify': true },
          {
            'client-certificate-data': base64(`\ufeff${identity.cert.replaceAll('\n', '\r\n')}`),
            'client-key-data': base64(`\ufeff${identity.key.replaceAll(/^/gm, '  ')}`),
          },
        ),
      );
      createSecureContext({ cert, key });
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
        /user u: exec is not supported, use a client certificate, token or tokenFile/,
      ],
      [
        'an auth provider',
        () => config({}, { 'auth-provider': { name: 'gcp' } }),
        /user u: auth-provider is not supported/,
      ],
      ['a password', () => config({}, { username: 'a', password: 'b' }), /user u: username is not supported/],
      ['a proxy', () => config({ 'proxy-url': 'http://p' }, {}), /cluster c: proxy-url is not supported/],
      [
        'a certificate without key',
        () => config({}, { 'client-certificate-data': base64(identity.cert) }),
        /user u: .* one is missing/,
      ],
      [
        'the key of another certificate',
        () => config({}, { 'client-certificate-data': base64(identity.cert), 'client-key-data': base64(other.key) }),
        /user u: client-key: the key does not match the certificate/,
      ],
      [
        'an encrypted key',
        () => config({}, { 'client-certificate-data': base64(identity.cert), 'client-key-data': base64(ENCRYPTED) }),
        /user u: client-key: the key in it is encrypted: remove its passphrase/,
      ],
      [
        'data that is no PEM',
        () => config({ 'certificate-authority-data': 'aGVsbG8=' }, {}),
        /cluster c: certificate-authority-data is not base64 of a PEM/,
      ],
      [
        'a PEM that is no certificate',
        () => config({ 'certificate-authority-data': base64(identity.key) }, {}),
        /certificate-authority: there is no certificate \(PEM\) in it/,
      ],
      [
        'a file that is not there',
        () => config({ 'certificate-authority': 'none.pem' }, {}),
        /cluster c: certificate-authority none\.pem cannot be read: there is no such file/,
      ],
      [
        'a device',
        () => config({ 'certificate-authority': '/dev/zero' }, {}),
        /certificate-authority \/dev\/zero cannot be read: it is not a regular file/,
      ],
      [
        'a token that is a device',
        () => config({}, { tokenFile: '/dev/zero' }),
        /user u: tokenFile \/dev\/zero cannot be read: it is not a regular file/,
      ],
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
      await assert.rejects(
        kubeconfigFile('/nowhere/kubeconfig')(),
        /^Error: kubeconfig \/nowhere\/kubeconfig: the file cannot be read: there is no such file$/,
      );
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
