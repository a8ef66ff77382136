import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttps } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { freePort, goMissing, goProgram, ROOT, type Scope, type TlsVia, tempDir, until } from '../harness/index.ts';
import { helmProgram, noHelm } from '../k8s/chart.ts';
import type { TenantTrust } from './tenant-trust.ts';

/** What answers as an API server with nothing in it: enough for `kubectl version` and `helm list`. */
function answerOf(path: string): object {
  if (path.includes('/secrets')) return { kind: 'SecretList', apiVersion: 'v1', metadata: {}, items: [] };
  return { major: '1', minor: '99', gitVersion: 'v1.99.0' };
}

interface Through {
  readonly via: TlsVia;
  readonly acme: Pick<TenantTrust, 'cluster' | 'agent'>;
  readonly token: string;
  /** Of a destination that answers GET with `here`, without TLS. */
  readonly port: number;
  /** Called with the name of a tool that this machine does not have. */
  readonly skipped: (tool: string) => void;
}

/** Runs the tools that this machine has through the plane to an API server of acme's. Each trusts one bundle for the proxy and for what is behind it. */
export async function dialsWithTools(scope: Scope, { via, acme, token, port, skipped }: Through): Promise<void> {
  const dir = await tempDir(scope);
  const { cert, key } = await acme.cluster.server();
  const api = createHttps({ cert: readFileSync(cert), key: readFileSync(key) }, (request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(answerOf(request.url ?? '')));
  }).listen(0, '127.0.0.1');
  await once(api, 'listening');
  scope.defer(() => void api.close());
  const authority = `127.0.0.1:${(api.address() as AddressInfo).port}`;
  const url = `https://${authority}/version`;
  const proxy = (password = token) => `https://acme:${password}@localhost:${via.port}`;
  const [own, both] = [`${dir}/own.pem`, `${dir}/both.pem`];
  writeFileSync(own, readFileSync(acme.cluster.cert));
  writeFileSync(both, `${readFileSync(acme.cluster.cert)}\n${readFileSync(via.ca)}`);
  // client-go shows the user's certificate to the proxy, too: the token counts.
  const user = await acme.agent('admin');
  const kubeconfig = (ca: string, more: object = {}) => {
    const path = `${dir}/${Math.random()}.conf`;
    const cluster = { server: `https://${authority}`, 'certificate-authority': ca, 'proxy-url': proxy(), ...more };
    const contexts = [{ name: 'acme', context: { cluster: 'acme', user: 'admin' } }];
    const users = [{ name: 'admin', user: { 'client-certificate': user.cert, 'client-key': user.key } }];
    const all = { clusters: [{ name: 'acme', cluster }], contexts, users, 'current-context': 'acme' };
    writeFileSync(path, JSON.stringify({ apiVersion: 'v1', kind: 'Config', ...all }));
    return path;
  };
  const kubectl = (path: string) => ['--kubeconfig', path, 'get', '--raw', '/version'];
  const python = `import requests; print(requests.get("${url}", verify="${both}").text)`;
  const fetched = (init = '{}') => `fetch('${url}', ${init}).then((r) => r.text()).then((t) => console.log(t))`;
  const deno = `Deno.createHttpClient({ caCerts: [Deno.readTextFileSync('${both}')], proxy: { url: 'https://localhost:${via.port}', basicAuth: { username: 'acme', password: '${token}' } } })`;
  const env = { HTTPS_PROXY: proxy(), NO_PROXY: '', no_proxy: '', https_proxy: proxy() };
  const FOUND = /v1\.99\.0/;
  const tools: Tool[] = [
    { name: 'kubectl', args: kubectl(kubeconfig(both)), says: FOUND },
    { name: 'kubectl', args: kubectl(kubeconfig(own)), says: /signed by unknown authority/ },
    // It is the name that both certificates must have.
    { name: 'kubectl', args: kubectl(kubeconfig(both, { 'tls-server-name': 'localhost' })), says: FOUND },
    { name: 'kubectl', args: kubectl(kubeconfig(both, { 'tls-server-name': 'api.acme' })), says: /not api\.acme/ },
    { name: 'python3', args: ['-c', python], env, says: /v1\.99\.0|No module named/ },
    { name: `${ROOT}node_modules/.bin/deno`, args: ['eval', fetched(`{ client: ${deno} }`)], says: FOUND },
    { name: `${ROOT}node_modules/.bin/deno`, args: ['eval', fetched()], env: { ...env, DENO_CERT: both }, says: FOUND },
  ];
  const git = (password = token) => [
    ...['-c', `http.proxy=${proxy(password)}`, '-c', `http.proxySSLCAInfo=${both}`],
    ...['ls-remote', url],
  ];
  const gitEnv = { GIT_SSL_CAINFO: both };
  tools.push(
    // It lists no branches, and complains of nothing.
    { name: 'git', args: git(), env: gitEnv, says: /^$/ },
    { name: 'git', args: git('wrong'), env: gitEnv, says: /407/ },
    terraform(`${dir}/terraform`, kubeconfig(both), /Successfully configured the backend/),
    terraform(`${dir}/terraform-own`, kubeconfig(own), /signed by unknown authority/),
  );
  if (Number(process.versions.node.split('.')[0]) >= 24)
    tools.push({
      name: 'node',
      args: ['-e', fetched()],
      env: { ...env, NODE_USE_ENV_PROXY: '1', NODE_EXTRA_CA_CERTS: both },
      says: FOUND,
    });
  if (!goMissing()) {
    const name = await goProgram('proxied');
    const args = (password = token) => ['-ca', both, '-proxy', proxy(password)];
    tools.push(
      { name, args: [...args(), url], says: FOUND },
      // The reason phrase of a 407 is all that net/http shows, and it asks once.
      {
        name,
        args: [...args('wrong'), url],
        says: /Proxy Authentication Required: .*not authorised/,
      },
    );
  }
  if (!noHelm) {
    const args = ['--kubeconfig', kubeconfig(both), 'list', '-o', 'json'];
    tools.push({ name: await helmProgram(), args, says: /^\[\]$/m });
  }
  // They speak no TLS to a proxy, so socat does for them.
  const leg = await legTo(scope, via);
  if (leg !== undefined) {
    const auth = `proxyport=${leg},proxyauth=acme:${token}`;
    const s_client = ['s_client', '-proxy', `127.0.0.1:${leg}`, '-proxy_user', 'acme', '-proxy_pass', 'env:TOKEN'];
    tools.push(
      {
        name: 'socat',
        // It waits half a second for the answer unless told otherwise.
        args: ['-t', '60', '-', `PROXY:127.0.0.1:127.0.0.1:${port},${auth}`],
        input: 'GET / HTTP/1.0\r\n\r\n',
        says: /here/,
      },
      {
        name: 'openssl',
        args: [...s_client, '-connect', authority, '-CAfile', both, '-verify_return_error', '-brief'],
        env: { TOKEN: token },
        says: /Verification: OK/,
      },
      {
        name: 'openssl',
        args: ['s_client', '-proxy', `localhost:${via.port}`, '-connect', authority],
        says: /this port speaks TLS: use https:\/\//,
      },
    );
  }
  await Promise.all(
    tools.map(async (tool) => {
      const said = await saidBy(tool);
      if (said === undefined) skipped(tool.name);
      else assert.match(said, tool.says, `${tool.name} ${tool.args.join(' ')}`.replaceAll(token, 'TOKEN'));
    }),
  );
}

interface Tool {
  readonly name: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string;
  readonly says: RegExp;
}

/** Terraform's kubernetes backend, which is part of the program and asks the API server for its state. */
function terraform(dir: string, kubeconfig: string, says: RegExp): Tool {
  mkdirSync(dir);
  writeFileSync(`${dir}/main.tf`, 'terraform {\n  backend "kubernetes" { secret_suffix = "state" }\n}\n');
  const args = [`-chdir=${dir}`, 'init', '-no-color', '-input=false', `-backend-config=config_path=${kubeconfig}`];
  return { name: 'terraform', args, env: { CHECKPOINT_DISABLE: '1' }, says };
}

/** What it printed; undefined if this machine does not have it. */
async function saidBy({ name, args, env, input = '' }: Tool): Promise<string | undefined> {
  return await new Promise((resolve) => {
    const options = { env: { ...process.env, ...env }, timeout: 60_000 };
    const child = execFile(name, args, options, (error, stdout, stderr) =>
      resolve(error?.code === 'ENOENT' ? undefined : `${stdout}${stderr}`),
    );
    child.stdin?.on('error', () => {}).end(input);
  });
}

/** A port that leads to the gateway's through TLS; undefined without socat. */
async function legTo(scope: Scope, { port, ca }: TlsVia): Promise<number | undefined> {
  if (spawnSync('socat', ['-V'], { stdio: 'ignore' }).error) return undefined;
  const leg = await freePort();
  const to = `OPENSSL:127.0.0.1:${port},cafile=${ca},commonname=localhost`;
  // As long as the tool: a request ends before its answer comes.
  const socat = spawn('socat', ['-t', '60', `TCP-LISTEN:${leg},bind=127.0.0.1,fork,reuseaddr`, to], {
    stdio: 'ignore',
  });
  scope.defer(() => void socat.kill());
  await until(
    () =>
      new Promise((resolve) => {
        const socket = connect(leg, '127.0.0.1', () => resolve(true)).once('error', () => resolve(false));
        socket.once('connect', () => socket.destroy());
      }),
    'socat listens',
  );
  return leg;
}
