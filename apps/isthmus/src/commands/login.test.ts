import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:https';
import { type AddressInfo, connect, createServer as createTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { parse } from 'yaml';
import { EXIT } from '../output.ts';
import { run } from '../program.ts';
import { inOwnMounts } from '../testing/mounts.ts';
import { TestTerminal } from '../testing/test-terminal.ts';

const HOUR = 3_600_000;
const main = fileURLToPath(new URL('../main.ts', import.meta.url));
const OLD = `# mine
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
  - name: home # stays
    cluster: {server: https://10.0.0.1:6443, certificate-authority: cluster-ca.pem, disable-compression: true}
users:
  - name: me
    user: {token: own}
contexts:
  - name: home
    context: {cluster: home, user: me, namespace: web}
current-context: home
`;

/** A gateway as callers see it, with the API server behind it, each with a CA of its own. */
async function startPair(dir: string) {
  const [front, behind] = await Promise.all(
    ['gateway CA', 'cluster CA'].map((name) => CertificateAuthority.create(name, HOUR)),
  );
  assert.ok(front && behind);
  const issue = (authority: CertificateAuthority, commonName: string) =>
    authority.issue({ commonName, validMs: HOUR, hosts: LOOPBACK });
  writeFileSync(join(dir, 'gateway-ca.pem'), front.cert);
  writeFileSync(join(dir, 'cluster-ca.pem'), behind.cert);
  const version = { major: '1', minor: '36', gitVersion: 'v1.36.0' };
  const asking = { requestCert: true, rejectUnauthorized: false };
  const own = { ...(await issue(behind, 'kube-apiserver')), ...asking };
  const api = createServer(own, ({ url, headers, socket }, response) => {
    const known = (socket as TLSSocket).getPeerCertificate().subject?.CN === 'alice';
    const isUser = known || headers.authorization === 'Bearer secret-1';
    // As a real one does, it tells its version to everybody.
    if (url !== '/version' && !isUser) response.statusCode = 401;
    response.setHeader('content-type', 'application/json').end(JSON.stringify(version));
  });
  const gateway = createServer({ ...(await issue(front, 'gw-1')), ...asking, allowHalfOpen: true });
  const open = new Set<Socket>();
  const seen: string[] = [];
  /** The names of the callers' certificates. */
  const shown: (string | undefined)[] = [];
  const answers = { token: 'secret-1', refusal: '', onward: 0 };
  gateway.on('connect', (request, socket: Socket) => {
    const basic = Buffer.from(`acme:${answers.token}`).toString('base64');
    seen.push(`${request.url}`);
    shown.push(`${(socket as TLSSocket).getPeerCertificate().subject?.CN}`);
    socket.on('error', () => {});
    if (request.headers['proxy-authorization'] !== `Basic ${basic}`)
      return socket.end(
        'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\nProxy-Status: gw-1; error=http_request_denied; details="no such token"\r\n\r\n',
      );
    if (answers.refusal !== '')
      return socket.end(`HTTP/1.1 502 Bad Gateway\r\nProxy-Status: ${answers.refusal}\r\n\r\n`);
    const port = answers.onward || (api.address() as AddressInfo).port;
    const onward = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => {
      socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
      socket.pipe(onward).pipe(socket);
    });
    onward.on('error', () => socket.destroy());
  });
  for (const server of [api, gateway]) {
    server.on('connection', (socket: Socket) => open.add(socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  }
  const portOf = (server: Server) => (server.address() as AddressInfo).port;
  const close = () => {
    for (const socket of open) socket.destroy();
    api.close();
    gateway.close();
  };
  const urls = { url: `https://127.0.0.1:${portOf(gateway)}`, api: `https://127.0.0.1:${portOf(api)}` };
  return { answers, seen, shown, close, ...urls, alice: await issue(behind, 'alice') };
}

describe('login and why', () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-login-'));
  const path = join(dir, 'config');
  let pair: Awaited<ReturnType<typeof startPair>>;
  before(async () => {
    pair = await startPair(dir);
    writeFileSync(join(dir, 'token'), 'secret-1\n');
  });
  after(() => {
    pair.close();
    rmSync(dir, { recursive: true });
  });

  async function isthmus(...args: string[]) {
    const terminal = new TestTerminal(args, { env: { KUBECONFIG: `${join(dir, 'none')}:${path}` } });
    return { status: await run(terminal), out: terminal.stdout, err: terminal.stderr };
  }
  const written = () => parse(readFileSync(path, 'utf8'));
  const login = (...args: string[]) =>
    isthmus('login', 'acme', '--gateway', pair.url, '--ca', join(dir, 'gateway-ca.pem'), ...args);
  const toApi = () => ['--server', pair.api, '--cluster-ca', join(dir, 'cluster-ca.pem')];
  const token = ['--token-file', join(dir, 'token')];

  it('writes a context beside the others, which stay as they are, for the owner alone', async () => {
    writeFileSync(join(dir, 'real'), OLD, { mode: 0o644 });
    symlinkSync('real', path);
    const { status, out } = await login(...token);
    assert.equal(status, EXIT.good);
    assert.match(out, /^Wrote context isthmus-acme to .*config, and made it current/);
    assert.equal(statSync(join(dir, 'real')).mode & 0o777, 0o600, 'the link leads to the file that was changed');
    const text = readFileSync(path, 'utf8');
    assert.match(text, /^# mine\n/);
    assert.match(text, /name: home # stays/);
    const { clusters, users, contexts, preferences, 'current-context': current } = written();
    assert.deepEqual([current, preferences], ['isthmus-acme', { colors: true }]);
    assert.deepEqual(clusters[0], parse(OLD).clusters[0]);
    assert.deepEqual(users, parse(OLD).users, 'the cluster takes the same user as before');
    assert.deepEqual(contexts, [
      parse(OLD).contexts[0],
      { name: 'isthmus-acme', context: { cluster: 'isthmus-acme', user: 'me', namespace: 'web' } },
    ]);
    const { server, 'proxy-url': proxy, 'certificate-authority-data': data } = clusters[1].cluster;
    assert.equal(server, 'https://10.0.0.1:6443');
    assert.equal(proxy, pair.url.replace('://', '://acme:secret-1@'));
    const pems = ['cluster-ca.pem', 'gateway-ca.pem'].map((file) => readFileSync(join(dir, file), 'utf8').trim());
    assert.equal(Buffer.from(data, 'base64').toString().trim(), pems.join('\n'));
    await login(...token, '--from', 'home');
    assert.equal(written().clusters.length, 2, 'a second login changes its own entries');
  });

  it('merges the files of KUBECONFIG as kubectl does, and changes each where it is', async () => {
    const at = (name: string) => join(dir, 'merged', name);
    mkdirSync(at('b'), { recursive: true });
    // Each file names others relative to itself.
    for (const name of ['b/cluster-ca.pem', 'cluster-ca.pem'])
      writeFileSync(at(name), readFileSync(join(dir, 'cluster-ca.pem')));
    const other = OLD.replaceAll('home', 'away').replace('10.0.0.1', '10.0.0.2');
    const config = (text: string, left: readonly string[]) =>
      JSON.stringify({ ...parse(text), ...Object.fromEntries(left.map((each) => [each, undefined])) });
    // The context is in one file, and its cluster and user in another.
    writeFileSync(at('a'), config(OLD, ['clusters', 'users', 'current-context']));
    writeFileSync(at('b/config'), config(OLD.replace('token: own', 'token: secret-1'), ['contexts']));
    writeFileSync(at('c'), config(other, []));
    const env = { KUBECONFIG: ['none', 'a', 'b/config', 'c', 'a'].map(at).join(':') };
    const asked = async (...args: string[]) => {
      const terminal = new TestTerminal(args, { env });
      return { status: await run(terminal), out: terminal.stdout, err: terminal.stderr };
    };
    const { out, status, err } = await asked('login', 'acme', '--gateway', pair.url, ...token);
    assert.equal(status, EXIT.good, err);
    assert.ok(out.includes(`to ${at('a')}, and made it current`), out);
    const [a, b, c] = ['a', 'b/config', 'c'].map((name) => parse(readFileSync(at(name), 'utf8')));
    assert.deepEqual(
      [
        a.clusters[0].cluster.server,
        a['current-context'],
        a.contexts.length,
        b['current-context'],
        c['current-context'],
      ],
      ['https://10.0.0.1:6443', 'isthmus-acme', 2, 'home', 'away'],
    );
    assert.equal(
      (await asked('login', 'acme', '--gateway', pair.url, ...token, '--from', 'away', '--as', 'home')).status,
      EXIT.good,
    );
    const [again, base] = ['a', 'b/config'].map((name) => parse(readFileSync(at(name), 'utf8')));
    assert.equal(again.contexts.find(({ name }: { name: string }) => name === 'home').context.cluster, 'home');
    assert.equal(base.clusters[0].cluster.server, 'https://10.0.0.2:6443', 'the entry stays in its file');
    assert.equal(existsSync(at('none')), false);
    if (spawnSync('kubectl', ['version', '--client']).status !== 0) return;
    const view = spawnSync('kubectl', ['config', 'view', '--minify', '-o', 'json'], {
      env: { ...process.env, ...env },
    });
    assert.equal(JSON.parse(view.stdout.toString()).clusters[0].cluster.server, 'https://10.0.0.2:6443');
  });

  it('writes a kubeconfig that is a mount in place, because nothing can replace it', async (t) => {
    const [file, mounted] = [join(dir, 'outside'), join(dir, 'mounted')];
    for (const each of [file, mounted]) writeFileSync(each, OLD);
    const line = [process.execPath, main, 'login', 'acme', '--gateway', pair.url, ...token, '--kubeconfig', mounted];
    const script = 'mount --bind "$0" "$1" || exit 77; shift; exec "$@"';
    const ended = inOwnMounts(t, script, [file, mounted, ...line]);
    if (!ended) return;
    assert.equal(ended.status, EXIT.good, ended.stderr);
    assert.equal(parse(readFileSync(file, 'utf8'))['current-context'], 'isthmus-acme');
    assert.equal(readFileSync(mounted, 'utf8'), OLD);
    assert.deepEqual(
      readdirSync(dir).filter((name) => /\.(tmp|lock)$/.test(name)),
      [],
    );
  });

  it('reads what kubectl reads, and says in one line what it cannot read or write', async () => {
    const at = join(dir, 'odd');
    const why = async (text: string) => {
      writeFileSync(at, text);
      const { status, out, err } = await isthmus('why', '--kubeconfig', at);
      return [status, (err || out).trimEnd()];
    };
    const home = OLD.replace('{token: own}', '');
    const direct = 'FAIL  context  home goes to https://10.0.0.1:6443 without a proxy\n';
    for (const user of ['user:', 'user: ~', 'user: []', 'user: text']) {
      const [status, said] = await why(home.replace('user: \n', `${user}\n`));
      assert.equal(status, EXIT.wrong, `${user}: ${said}`);
      assert.ok(`${said}`.startsWith(direct), `${user}: ${said}`);
    }
    for (const [text, says] of [
      [OLD.replace('context: {cluster: home, user: me, namespace: web}', 'context:'), 'has no context "home"'],
      [OLD.replace(/cluster: \{server.*/, 'cluster: text'), 'has no cluster "home", which context home names'],
      ['contexts: *nowhere\ncurrent-context: home\n', 'has no contexts: Unresolved alias'],
      [
        `a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [${'*a,'.repeat(9)}]\nc: &c [${'*b,'.repeat(9)}]\ncontexts: [${'*c,'.repeat(9)}]\ncurrent-context: home\n`,
        'has no contexts: Excessive alias count',
      ],
    ] as const) {
      const [status, said] = await why(text);
      assert.ok(`${said}`.startsWith(`isthmus: ${at} ${says}`), `${said}`);
      assert.deepEqual([status, `${said}`.includes('\n')], [EXIT.usage, false]);
    }
    for (const below of [join(dir, 'token', 'config'), '/proc/none/config']) {
      const { status, err } = await login(...token, ...toApi(), '--kubeconfig', below);
      assert.deepEqual([status, err.split('\n').length], [EXIT.usage, 2], err);
      assert.ok(err.startsWith(`isthmus: cannot write ${below}: `), err);
    }
    writeFileSync(path, '');
    assert.equal((await login(...token, ...toApi())).status, EXIT.good);
    for (const shown of ['%zz:%e0', 'acme%4:1']) {
      writeFileSync(at, readFileSync(path, 'utf8').replace('acme:secret-1@', `${shown}@`));
      const renewed = await isthmus('credential', '--kubeconfig', at, 'isthmus-acme', '--', 'echo', 'secret-1');
      assert.deepEqual([renewed.status, renewed.err.split('\n').length], [EXIT.usage, 2], renewed.err);
      assert.match(renewed.err, /^isthmus: proxy-url: want a URL such as /);
      assert.deepEqual(await isthmus('why', '--kubeconfig', at), { ...renewed, out: '' });
    }
  });

  it('keeps a token of the plane from the API server, and leaves no other file behind', async () => {
    writeFileSync(path, '');
    const made = `isthmus_0123456789abcdef_${'A'.repeat(43)}`;
    writeFileSync(join(dir, 'made'), made);
    const { status, err } = await login('--token-file', join(dir, 'made'), ...toApi());
    assert.equal(status, EXIT.good);
    assert.match(err, /user isthmus-acme needs a credential of its own: kubectl config set-credentials isthmus-acme /);
    const { clusters, users } = written();
    assert.deepEqual(users, [{ name: 'isthmus-acme', user: {} }]);
    assert.ok(clusters[0].cluster['proxy-url'].includes(made));
    assert.deepEqual(
      readdirSync(dir).filter((name) => /\.(tmp|lock)$/.test(name)),
      [],
    );
  });

  it('asks for the cluster where no context names one', async () => {
    for (const none of ['', OLD.replace('current-context: home', '')]) {
      writeFileSync(path, none);
      const { status, err } = await login(...token);
      assert.equal(status, EXIT.usage);
      assert.match(err, /has no current context .*: give --server URL and --cluster-ca FILE, or --from CONTEXT/);
      assert.equal(readFileSync(path, 'utf8'), none);
    }
  });

  it('creates the file to which a link leads, and leaves links that lead nowhere', async () => {
    mkdirSync(join(dir, 'later'));
    const link = join(dir, 'link');
    symlinkSync('hop', link);
    symlinkSync('later/config', join(dir, 'hop'));
    for (const user of ['first', 'second'])
      assert.equal((await login(...token, ...toApi(), '--as', user, '--kubeconfig', link)).status, EXIT.good);
    assert.ok(lstatSync(link).isSymbolicLink(), 'it is still a link');
    assert.match(readFileSync(join(dir, 'later', 'config'), 'utf8'), /name: first.*name: second/s);
    // A relative link leads on from where it is, and not from the link to its directory.
    mkdirSync(join(dir, 'deep', 'er'), { recursive: true });
    symlinkSync('deep/er', join(dir, 'linked'));
    symlinkSync('../beside', join(dir, 'deep', 'er', 'link'));
    const through = join(dir, 'linked', 'link');
    assert.equal((await login(...token, ...toApi(), '--kubeconfig', through)).status, EXIT.good);
    assert.ok(existsSync(join(dir, 'deep', 'beside')) && !existsSync(join(dir, 'beside')));
    for (const to of ['no/such/place', 'round']) {
      const round = join(dir, 'round');
      symlinkSync(to, round);
      const { status, err } = await login(...token, ...toApi(), '--kubeconfig', round);
      assert.equal(status, EXIT.usage);
      assert.match(err, /^isthmus: cannot (read|write) /);
      assert.ok(lstatSync(round).isSymbolicLink(), to);
      rmSync(round);
    }
  });

  it('does not write through a file that another one has put beside it', async () => {
    const [aside, victim] = [join(dir, 'aside'), join(dir, 'victim')];
    writeFileSync(victim, 'mine');
    symlinkSync('victim', `${aside}.${process.pid}.tmp`);
    assert.equal((await login(...token, ...toApi(), '--kubeconfig', aside)).status, EXIT.good);
    assert.equal(readFileSync(victim, 'utf8'), 'mine');
    rmSync(`${aside}.${process.pid}.tmp`);
  });

  it('says how far a call gets, and kubectl gets as far', async () => {
    writeFileSync(path, '');
    assert.equal((await login(...token, ...toApi())).status, EXIT.good);
    const { status, out } = await isthmus('why');
    assert.equal(status, EXIT.good, out);
    assert.match(
      out,
      /ok {4}gateway +gw-1 by gateway CA, .*\nok {4}tunnel +open to 127.* as tenant acme\nok {4}server +kube-apiserver by cluster CA, .*\nok {4}answer +the API server answers 200\n$/,
    );
    if (spawnSync('kubectl', ['version', '--client']).status !== 0) return;
    const before = pair.seen.length;
    const kubectl = spawn('kubectl', ['--kubeconfig', path, 'get', '--raw', '/version', '--request-timeout', '30s']);
    let said = '';
    for (const stream of [kubectl.stdout, kubectl.stderr]) stream.on('data', (chunk) => (said += chunk));
    await once(kubectl, 'close');
    assert.match(said, /v1\.36\.0/);
    assert.ok(pair.seen.length > before, 'through the gateway');
  });

  it('finds names of the hosts file with a last dot, as kubectl does', async () => {
    writeFileSync(path, '');
    assert.equal((await login(...token, ...toApi())).status, EXIT.good);
    writeFileSync(path, readFileSync(path, 'utf8').replace('@127.0.0.1', '@LocalHost.'));
    const { status, out } = await isthmus('why');
    assert.equal(status, EXIT.good, out);
    const nobody = await isthmus('status', '-a', 'localhost.:1');
    assert.match(nobody.err, /ECONNREFUSED/);
  });

  it('says that a user has no credential, or one that the API server does not know', async () => {
    writeFileSync(path, '');
    assert.equal((await login(...token, ...toApi())).status, EXIT.good);
    const before = readFileSync(path, 'utf8');
    const config = written();
    for (const [user, says] of [
      [
        {},
        /FAIL {2}answer +the API server answers 200, but user isthmus-acme has no credential: kubectl asks for a name/,
      ],
      [
        { token: 'other' },
        /FAIL {2}answer +the API server answers 401: it does not know the credential of user isthmus-acme/,
      ],
    ] as const) {
      writeFileSync(path, JSON.stringify({ ...config, users: [{ name: 'isthmus-acme', user }] }));
      const { status, out } = await isthmus('why');
      assert.equal(status, EXIT.wrong, out);
      assert.match(out, says);
      assert.match(out, /-> kubectl config set-credentials isthmus-acme --token=TOKEN\n$/);
    }
    writeFileSync(path, before);
  });

  it('pipes through a tunnel, and each direction ends by itself', async () => {
    // It answers only once its input has ended.
    const destination = createTcp({ allowHalfOpen: true }, (socket) => {
      let said = '';
      socket.on('data', (chunk) => {
        said += chunk;
      });
      socket.on('end', () => socket.end(`got ${said}`));
    }).listen(0, '127.0.0.1');
    await once(destination, 'listening');
    pair.answers.onward = (destination.address() as AddressInfo).port;
    const { port } = destination.address() as AddressInfo;
    const spoken = async (...more: string[]) => {
      const child = spawn(process.execPath, [main, 'nc', `127.0.0.1:${port}`, '--timeout', '30s', ...more], {
        env: { KUBECONFIG: path },
      });
      let out = '';
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (out += chunk));
      child.stdin.end('hello');
      const [code] = await once(child, 'close');
      return { code, out };
    };
    try {
      const flags = ['--gateway', pair.url, '--ca', join(dir, 'gateway-ca.pem'), '--tenant', 'acme', ...token];
      assert.deepEqual(await Promise.all([spoken(), spoken(...flags)]), [
        { code: 0, out: 'got hello' },
        { code: 0, out: 'got hello' },
      ]);
      pair.answers.token = 'other';
      const { code, out } = await spoken();
      assert.equal(code, EXIT.wrong);
      assert.match(out, /^isthmus: 407: the gateway does not take the token for tenant acme: no such token: is /);
    } finally {
      pair.answers.token = 'secret-1';
      pair.answers.onward = 0;
      destination.close();
    }
  });

  it('names the step that fails, and what to do, and never the token', async () => {
    const failing = async (says: RegExp, ...args: string[]) => {
      const { status, out, err } = await isthmus('why', ...args);
      assert.equal(status, EXIT.wrong, out);
      assert.match(out, says);
      assert.doesNotMatch(out + err, /secret/);
    };
    const changed = (from: string | RegExp, to: string) =>
      writeFileSync(path, readFileSync(path, 'utf8').replace(from, to));
    pair.answers.token = 'other';
    await failing(
      /FAIL {2}tunnel {3}407: the gateway does not take the token for tenant acme: no such token\n +-> is the tenant's name right/,
    );
    pair.answers.token = 'secret-1';
    pair.answers.refusal = 'gw-1; error=connection_refused; details="dial tcp: \\"refused\\""';
    await failing(
      /FAIL {2}tunnel {3}the gateway answers 502: connection_refused: dial tcp: "refused"\n +-> the agent reached/,
    );
    pair.answers.refusal = '';
    changed('proxy-url: https', 'proxy-url: http');
    await failing(/FAIL {2}tunnel .*\n +-> (a gateway speaks TLS there|it closed the connection)/);
    changed('proxy-url: http:', 'proxy-url: https:');
    const jwt = `e30.${Buffer.from(JSON.stringify({ exp: 1_700_000_000 })).toString('base64url')}.x`;
    changed('acme:secret-1@', `acme:${jwt}@`);
    await failing(/407: the token of acme expired at 2023-11-14T22:13:20.000Z\n +-> log in again/);
    const only = readFileSync(join(dir, 'cluster-ca.pem')).toString('base64');
    changed(/certificate-authority-data: \S*(\n +\S+$)*/m, `certificate-authority-data: ${only}`);
    await failing(/FAIL {2}gateway {2}.*\n +-> its CA is not in the cluster's certificate-authority-data/);
    writeFileSync(join(dir, 'real'), OLD);
    await failing(
      /FAIL {2}context {2}home goes to .* without a proxy\n +-> isthmus login/,
      '--kubeconfig',
      join(dir, 'real'),
    );
  });

  it('renews a token by a command, for the next call and for the API server', async () => {
    writeFileSync(path, '');
    const command = join(dir, 'print-token');
    const prints = (text: string) => {
      writeFileSync(command, `#!/bin/sh\necho '${text}'\n`);
      chmodSync(command, 0o755);
    };
    prints('secret-1');
    assert.equal((await login(...toApi(), '--', command)).status, EXIT.good);
    const { users, clusters } = written();
    prints(`isthmus_0123456789abcdef_${'A'.repeat(43)}`);
    const refused = await login(...toApi(), '--', command);
    assert.equal(refused.status, EXIT.wrong);
    assert.match(refused.err, /print-token printed a token of the plane's own.*--token-file/);
    assert.deepEqual([written().users, written().clusters], [users, clusters]);
    const { exec } = users[0].user;
    assert.equal(exec.apiVersion, 'client.authentication.k8s.io/v1');
    const later = await isthmus(...exec.args);
    assert.deepEqual([later.status, later.out], [EXIT.wrong, '']);
    assert.match(later.err, /print-token printed a token of the plane's own/);
    prints(JSON.stringify({ status: { token: 'secret-2', expirationTimestamp: '2030-01-01T00:00:00Z' } }));
    const { status, out } = await isthmus(...exec.args);
    assert.equal(status, EXIT.good);
    assert.deepEqual(JSON.parse(out), {
      apiVersion: 'client.authentication.k8s.io/v1',
      kind: 'ExecCredential',
      status: { token: 'secret-2', expirationTimestamp: '2030-01-01T00:00:00Z' },
    });
    assert.match(written().clusters[0].cluster['proxy-url'], /:\/\/acme:secret-2@/);
    const asks = ['-c', 'echo "your code?" >&2; read code; echo "secret-$code"'];
    const child = spawn(process.execPath, [main, ...exec.args.slice(0, -1), 'sh', ...asks]);
    let said = '';
    child.stderr.on('data', (chunk) => (said += chunk));
    child.stdin.end('3\n');
    const [code] = await once(child, 'close');
    assert.deepEqual([code, said], [EXIT.good, 'your code?\n'], 'its user sees what it asks, and answers');
    assert.match(written().clusters[0].cluster['proxy-url'], /:\/\/acme:secret-3@/);
    prints('{"status": ');
    const malformed = await isthmus(...exec.args);
    assert.equal(malformed.status, EXIT.wrong);
    assert.match(
      malformed.err,
      /^isthmus: .*print-token printed no token: what begins as an ExecCredential is no JSON\n$/,
    );
    prints('');
    const failed = await isthmus(...exec.args);
    assert.deepEqual([failed.status, failed.out], [EXIT.wrong, '']);
  });

  it("shows the user's client certificate to the gateway, as client-go does", async () => {
    writeFileSync(path, '');
    assert.equal((await login(...token, ...toApi())).status, EXIT.good);
    const { cert, key } = pair.alice;
    writeFileSync(join(dir, 'alice.pem'), cert);
    const user = { 'client-certificate': 'alice.pem', 'client-key-data': Buffer.from(key).toString('base64') };
    const config = written();
    writeFileSync(path, JSON.stringify({ ...config, users: [{ name: 'isthmus-acme', user }] }));
    assert.equal((await isthmus('why')).status, EXIT.good);
    assert.equal(pair.shown.at(-1), 'alice');
    const { 'client-key-data': _gone, ...half } = user;
    writeFileSync(path, JSON.stringify({ ...config, users: [{ name: 'isthmus-acme', user: half }] }));
    assert.match((await isthmus('why')).err, /has only one of client-certificate and client-key/);
  });

  it('refuses what cannot work, and loses nothing of a file that it cannot read', async () => {
    const cases: readonly [readonly string[], RegExp][] = [
      [['login', 'acme', '--gateway', 'http://gw:1', ...token], /gateways take tokens over TLS only/],
      [['login', 'acme', '--gateway', pair.url], /give --token-file FILE, or -- COMMAND/],
      [['login', 'acme', '--gateway', pair.url, ...token, '--from', 'nowhere'], /has no context "nowhere"/],
      [
        ['login', 'acme', '--gateway', pair.url, '--ca', join(dir, 'gateway-ca.pem'), ...token, '--server', pair.api],
        /--ca alone would replace the system's CAs/,
      ],
      [['nc', 'db:1', '--gateway', pair.url, '--cert', 'c.pem'], /--cert and --key go together/],
      [
        ['login', 'acme', '--gateway', pair.url, '--server', pair.api, '--token-file', '/dev/zero'],
        /--token-file: cannot read \/dev\/zero: it is not a regular file/,
      ],
      [
        ['login', 'acme', '--gateway', pair.url, '--server', pair.api, ...token, '--cluster-ca', '/dev/zero'],
        /--cluster-ca: cannot read \/dev\/zero: it is not a regular file/,
      ],
      [['why', '--kubeconfig', '/dev/zero'], /cannot read \/dev\/zero: it is not a regular file/],
      [['nc', 'db:1', ...token], /--token-file goes with --gateway/],
      [['nc', 'db:1', '--ca', 'ca.pem'], /--ca goes with --gateway/],
      [['nc', 'db:1', '--cert', 'c.pem', '--key', 'k.pem'], /--cert goes with --gateway/],
      [['nc', 'db:1', '--tenant', 'acme'], /--tenant goes with --gateway/],
    ];
    for (const [args, says] of cases) {
      const { status, err } = await isthmus(...args);
      assert.equal(status, EXIT.usage, args.join(' '));
      assert.match(err, says);
    }
    const insecure = OLD.replace('certificate-authority: cluster-ca.pem', 'insecure-skip-tls-verify: true');
    writeFileSync(path, insecure);
    const { status, err } = await login(...token);
    assert.equal(status, EXIT.usage);
    assert.match(err, /context home has insecure-skip-tls-verify: nobody would check the gateway/);
    assert.equal(readFileSync(path, 'utf8'), insecure);
    writeFileSync(path, 'clusters: [\n');
    assert.match((await login(...token, ...toApi())).err, /has no contexts: line \d+ is no YAML/);
    assert.equal(readFileSync(path, 'utf8'), 'clusters: [\n');
  });
});
