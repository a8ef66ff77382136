import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readAtMost, readNamedFile, reasonOf } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { Argument, Option } from 'commander';
import { type Call, command } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { type KubeContext, Kubeconfig, kubeContext, readNamed, urlOf } from '../kubeconfig.ts';
import { age, EXIT, Failure, usage } from '../output.ts';
import { expiryOf } from '../through-gateway.ts';

interface Options {
  readonly gateway?: string;
  readonly tokenFile?: string;
  readonly from?: string;
  readonly server?: string;
  readonly clusterCa?: string;
  readonly as?: string;
  readonly kubeconfig?: string;
}

export const kubeconfigOption = new Option('--kubeconfig <file>', "instead of KUBECONFIG's or ~/.kube/config");

export const login = command({
  name: 'login',
  summary: 'Write a kubeconfig context that reaches a cluster through a gateway, with a token',
  details: `The context's proxy-url is https://TENANT:TOKEN@GATEWAY, which kubectl, Helm and all of client-go send as Proxy-Authorization. client-go checks the gateway's certificate against the cluster's CA data, and with its tls-server-name, so the written CA data holds --ca too. The API server and its CA come from the context of --from, the current one, or from --server and --cluster-ca.

Short-lived tokens: name a command behind -- that prints one. kubectl then asks isthmus for a credential (an exec plugin), which runs the command, writes the new token into proxy-url, and gives it to the API server as well. kubectl has read proxy-url by then, so the new token serves its next call: after a pause longer than a token lives, the first call is answered with 407, and the second works.`,
  args: [
    new Argument('<tenant>', 'the tenant of the cluster'),
    new Argument('[command...]', 'behind --: what prints a token, or an ExecCredential, to run whenever one is needed'),
  ],
  options: [
    new Option('--gateway <url>', "the gateway's port for callers: https://gateway.example:8090"),
    new Option('--token-file <file>', 'the token; - reads it from standard input. A command line is no place for it'),
    new Option('--from <context>', 'take cluster and user of this context').conflicts(['server', 'clusterCa']),
    new Option('--server <url>', 'the API server as agents reach it: https://kubernetes.default.svc'),
    new Option('--cluster-ca <file>', "the API server's CA certificates (PEM)"),
    new Option('--as <context>', "the context's name").default(undefined, 'isthmus-TENANT'),
    kubeconfigOption,
  ],
  examples: {
    'login acme --gateway https://gw.example:8090 --ca gateway-ca.pem --token-file acme.token':
      'to the cluster of the current context',
    'login acme --gateway https://gw.example:8090 --server https://kubernetes.default.svc --cluster-ca ca.pem -- gcloud auth print-identity-token':
      'with tokens that a command prints',
  },
  asksNobody: () => true,
  async run({ args, options, output, terminal }: Call<Options>) {
    const [tenant, run = []] = args as unknown as [string, (readonly string[])?];
    const gateway = urlOf('--gateway', options.gateway ?? '');
    if (gateway.protocol !== 'https:')
      throw usage('--gateway: want https://, since gateways take tokens over TLS only');
    if ((options.tokenFile === undefined) === (run.length === 0)) throw usage('give --token-file FILE, or -- COMMAND');
    const paths = Kubeconfig.locate(terminal, options.kubeconfig);
    const base = options.server === undefined ? await baseOf(Kubeconfig.read(paths), options.from) : undefined;
    if (base?.insecure)
      throw usage(
        `context ${base.context} has insecure-skip-tls-verify: nobody would check the gateway, to which the token goes. Give --server and --cluster-ca, or --from a context with a CA`,
      );
    const name = options.as ?? `isthmus-${tenant}`;
    const { token } = run.length > 0 ? await tokenFrom(run) : { token: tokenIn(options.tokenFile ?? '') };
    const cluster = await clusterOf(options, base, proxyUrl(gateway, tenant, token));
    const planesOwn = await isPlanesOwn(token);
    const forServer = planesOwn ? {} : { token };
    const isOwn = run.length > 0 || !base;
    const changed = await Kubeconfig.change(paths, (config) => {
      config.put('clusters', name, cluster);
      config.put('contexts', name, {
        cluster: name,
        user: isOwn ? name : base?.user,
        ...(base?.namespace !== undefined && { namespace: base.namespace }),
      });
      const own = run.length > 0 ? { exec: plugin(name, fileOf(config, name), run) } : forServer;
      if (isOwn) config.put('users', name, { token: undefined, exec: undefined, ...own });
      config.currentContext = name;
    });
    const path = fileOf(changed, name);
    if (base?.serverName)
      output.remark(
        `the cluster has tls-server-name: client-go wants ${base.serverName} in the gateway's certificate too`,
      );
    if (isOwn && planesOwn)
      output.remark(
        `the API server does not know this token, so user ${name} needs a credential of its own: kubectl config set-credentials ${name} --token=TOKEN`,
      );
    const view = { context: name, kubeconfig: path, server: cluster.server, gateway: gateway.origin };
    output.show(
      view,
      ({ context, kubeconfig }) =>
        `Wrote context ${context} to ${kubeconfig}, and made it current. Try: kubectl version; isthmus why\n`,
    );
    return EXIT.good;
  },
});

/** The file of a written context's cluster, which `isthmus credential` changes. */
function fileOf(config: Kubeconfig, name: string): string {
  return config.entry('clusters', name)?.path ?? config.path;
}

/** The context that names the cluster to go to. */
async function baseOf(config: Kubeconfig, from = config.currentContext): Promise<KubeContext> {
  if (from === '')
    throw usage(
      `${config.path} has no current context to take the cluster of: give --server URL and --cluster-ca FILE, or --from CONTEXT`,
    );
  return await kubeContext(config, from);
}

/** @returns the fields of the cluster's entry */
async function clusterOf(options: Options & { readonly ca?: string }, base: KubeContext | undefined, proxy: string) {
  const server = base?.server ?? options.server ?? '';
  urlOf(base ? "the cluster's server" : '--server', server);
  const ca = base
    ? base.ca
    : options.clusterCa === undefined
      ? undefined
      : readNamed('--cluster-ca', options.clusterCa);
  const gatewayCa = options.ca === undefined ? undefined : readNamed('--ca', options.ca);
  // Certificates in a kubeconfig take the place of the system's.
  if (gatewayCa !== undefined && ca === undefined)
    throw usage(
      "--ca alone would replace the system's CAs for the API server too: give --cluster-ca with --server, or leave out --ca",
    );
  const both = [ca, gatewayCa].filter((pem) => pem !== undefined).map((pem) => pem.trim());
  const data = both.length > 0 ? Buffer.from(`${both.join('\n')}\n`).toString('base64') : undefined;
  return {
    server,
    'proxy-url': proxy,
    'certificate-authority-data': data,
    'certificate-authority': undefined,
    'tls-server-name': base?.serverName,
    'insecure-skip-tls-verify': undefined,
  };
}

function proxyUrl(gateway: URL, tenant: string, token: string): string {
  return `https://${encodeURIComponent(tenant)}:${encodeURIComponent(token)}@${gateway.host}`;
}

/** The exec plugin of the written user. */
function plugin(context: string, path: string, run: readonly string[]) {
  return {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: 'isthmus',
    args: ['credential', '--kubeconfig', path, context, '--', ...run],
    interactiveMode: 'IfAvailable',
    installHint: 'isthmus is the command line of the plane that leads to this cluster: npm install -g isthmus',
  };
}

export const credential = command({
  name: 'credential',
  summary: "Renew a context's token: kubectl runs this, as login has set it up",
  details:
    'Runs the command, writes its token into proxy-url of the context for the next call, and prints an ExecCredential.',
  args: [
    new Argument('<context>', 'the context that login wrote'),
    new Argument('<command...>', 'behind --: what prints a token or an ExecCredential'),
  ],
  options: [kubeconfigOption],
  examples: {
    'credential isthmus-acme -- gcloud auth print-identity-token': 'what kubectl runs',
  },
  asksNobody: () => true,
  async run({ args, options, terminal }: Call<Pick<Options, 'kubeconfig'>>) {
    const [context, run] = args as unknown as [string, readonly string[]];
    const paths = Kubeconfig.locate(terminal, options.kubeconfig);
    const { cluster, proxy } = await kubeContext(Kubeconfig.read(paths), context);
    if (!proxy) throw usage(`context ${context} has no proxy-url: isthmus login writes it`);
    const { token, expires } = await tokenFrom(run);
    if (decodeURIComponent(proxy.password) !== token) {
      const renewed = proxyUrl(proxy, decodeURIComponent(proxy.username), token);
      await Kubeconfig.change(paths, (config) => config.put('clusters', cluster, { 'proxy-url': renewed }));
    }
    const status = { token, ...(expires !== undefined && { expirationTimestamp: expires }) };
    terminal.out(
      `${JSON.stringify({ apiVersion: 'client.authentication.k8s.io/v1', kind: 'ExecCredential', status })}\n`,
    );
    return EXIT.good;
  },
});

interface Token {
  readonly token: string;
  /** RFC 3339. */
  readonly expires?: string;
}

/** Runs a command that prints a token for gateway and API server, or an ExecCredential as kubectl's plugins do. */
async function tokenFrom(run: readonly string[]): Promise<Token> {
  const printed = await printedToken(run);
  if (await isPlanesOwn(printed.token))
    throw new Failure(
      EXIT.wrong,
      `${run[0]} printed a token of the plane's own, and kubectl would show it to the API server too: give it with --token-file`,
    );
  return printed;
}

/** Whether a token means nothing to an API server, which must not learn it. */
async function isPlanesOwn(token: string): Promise<boolean> {
  // Only here: with it comes all that reads tenants' files, a third of the modules of a command.
  const { beginsAsPassword } = await import('@isthmus/admission');
  return beginsAsPassword(token);
}

async function printedToken(run: readonly string[]): Promise<Token> {
  const [program = ''] = run;
  const text = await printedBy(run).catch((error: NodeJS.ErrnoException) => {
    const why =
      error.code === 'ENOENT'
        ? 'there is no such program'
        : error.name === 'AbortError'
          ? `it took longer than ${age(ISTHMUS.tokenCommandMs)}`
          : inWords(error);
    throw new Failure(EXIT.wrong, `${program} printed no token: ${why}`);
  });
  if (!text.startsWith('{')) return expiring(checked(text, program));
  const { token: given, expirationTimestamp: expires } = statusIn(text, program);
  const token = checked(typeof given === 'string' ? given : '', program);
  return typeof expires === 'string' ? { token, expires } : expiring(token);
}

/** The status of an ExecCredential. */
function statusIn(text: string, program: string): { readonly token?: unknown; readonly expirationTimestamp?: unknown } {
  try {
    return (JSON.parse(text) as { status?: object | null }).status ?? {};
  } catch {
    throw new Failure(EXIT.wrong, `${program} printed no token: what begins as an ExecCredential is no JSON`);
  }
}

/** Runs a command that may ask its user: its standard input and error are this program's. Returns what it printed. */
async function printedBy([program = '', ...args]: readonly string[]): Promise<string> {
  const child = spawn(program, args, { stdio: ['inherit', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
    if (text.length > ISTHMUS.tokenBytes) child.stdout.destroy();
  });
  try {
    const [code, signal] = await once(child, 'close', { signal: AbortSignal.timeout(ISTHMUS.tokenCommandMs) });
    if (text.length > ISTHMUS.tokenBytes) throw new Error(`it printed more than ${ISTHMUS.tokenBytes} bytes`);
    if (code === 0) return text.trim();
    throw new Error(code === null ? `it was ended by ${signal}` : `it exited with ${code}`);
  } finally {
    child.stdout.destroy();
    child.kill();
    child.unref();
  }
}

export function tokenIn(file: string): string {
  return checked(tokenBytes(file)?.toString().trim() ?? '', '--token-file');
}

function tokenBytes(file: string): Buffer | undefined {
  try {
    return file === '-' ? readAtMost(0, ISTHMUS.tokenBytes) : readNamedFile(file, ISTHMUS.tokenBytes);
  } catch (error) {
    throw usage(`--token-file: cannot read ${file}: ${reasonOf(error)}`);
  }
}

function checked(token: string, from: string): string {
  if (/^[\x21-\x7e]+$/.test(token) && token.length <= ISTHMUS.tokenBytes) return token;
  throw new Failure(
    EXIT.wrong,
    `${from} has no token: want one line without spaces, of ${ISTHMUS.tokenBytes} bytes at most`,
  );
}

/** A JWT says when it expires. */
function expiring(token: string): Token {
  const at = expiryOf(token);
  return at === undefined ? { token } : { token, expires: new Date(at).toISOString() };
}
