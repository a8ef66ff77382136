import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { adviceFor } from '@isthmus/findings';
import { inWords } from '@isthmus/tunnel';
import { Option } from 'commander';
import { type Call, command } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { type KubeContext, Kubeconfig, kubeContext } from '../kubeconfig.ts';
import { EXIT, isoTime, type Style } from '../output.ts';
import { folded } from '../table.ts';
import { expiryOf, kubeconfigOption } from './login.ts';

interface StepView {
  readonly step: 'context' | 'name' | 'address' | 'gateway' | 'tunnel' | 'server' | 'answer';
  readonly ok: boolean;
  readonly detail: string;
  readonly todo?: string;
}

export const why = command({
  name: 'why',
  summary: 'Explain why a kubeconfig context does not get through its gateway, step by step',
  details:
    "Does what client-go does, and stops where it fails: the gateway's name, address and certificate, the tunnel to the API server (CONNECT), the API server's certificate and its answer. Each failed step says what to do. Exits with 1 if one fails.",
  options: [new Option('--context <name>', 'instead of the current context'), kubeconfigOption],
  examples: [
    { line: 'why', does: 'the current context' },
    { line: 'why --context isthmus-acme -o json', does: 'another one, for programs' },
  ],
  async run({ options, output, terminal }: Call<{ readonly context?: string; readonly kubeconfig?: string }>) {
    const config = await Kubeconfig.read(await Kubeconfig.locate(terminal, options.kubeconfig));
    const context = await kubeContext(config, options.context);
    const signal = AbortSignal.any([terminal.interrupted, AbortSignal.timeout(options.timeout)]);
    const steps = await stepsOf(context, signal);
    const ok = steps.every((step) => step.ok);
    output.show({ context: context.context, ok, steps }, (_, style) => stepsText(steps, style));
    return ok ? EXIT.good : EXIT.wrong;
  },
});

function stepsText(steps: readonly StepView[], style: Style): string {
  const lines = steps.map(({ step, ok, detail, todo }) => {
    const head = `${ok ? style.good('ok  ') : style.bad('FAIL')}  ${step.padEnd('context'.length)}  ${detail}\n`;
    return todo === undefined ? head : `${head}               -> ${todo}\n`;
  });
  return folded(lines.join(''), style);
}

/** A step that failed, and what to do. */
class Stop extends Error {
  override readonly name = 'Stop';
  readonly todo: string;

  constructor(message: string, todo: string) {
    super(message);
    this.todo = todo;
  }
}

/** Walks the way of a call through the gateway. Returns the steps that were tried. */
async function stepsOf(context: KubeContext, signal: AbortSignal): Promise<StepView[]> {
  const steps: StepView[] = [];
  const sockets: Socket[] = [];
  const step = async <T extends { readonly detail: string }>(name: StepView['step'], act: () => T | Promise<T>) => {
    try {
      const done = await act();
      steps.push({ step: name, ok: true, detail: done.detail });
      return done;
    } catch (error) {
      const late = signal.aborted ? 'no answer in time (--timeout)' : inWords(error);
      const todo = error instanceof Stop ? error.todo : FAULTS.find(([pattern]) => pattern.test(late))?.[1];
      steps.push({ step: name, ok: false, detail: late, todo: todo ?? 'see whether the gateway runs: isthmus status' });
      throw STOPPED;
    }
  };
  try {
    const { proxy, host, port, target } = await step('context', () => planOf(context));
    const { address } = await step('name', () => resolved(host, signal));
    const { socket } = await step('address', () => opened(address, port, sockets, signal));
    const gateway =
      proxy.protocol === 'https:'
        ? await step('gateway', () => secured(socket, host, context, sockets, signal))
        : { socket };
    await step('tunnel', () => tunnelled(gateway.socket, proxy, target.authority, signal));
    const server = await step('server', () => secured(gateway.socket, target.host, context, sockets, signal));
    await step('answer', () => answered(server.socket, target.authority, signal));
  } catch (error) {
    if (error !== STOPPED) throw error;
  } finally {
    for (const socket of sockets) socket.destroy();
  }
  return steps;
}

const STOPPED = new Error('a step failed');

const FAULTS: readonly (readonly [RegExp, string])[] = [
  [
    /ENOTFOUND|EAI_AGAIN/,
    'the name does not resolve on this machine: is it spelt right, and is a VPN or a resolver missing?',
  ],
  [/ECONNREFUSED/, 'nothing listens there: does the gateway run, and is this its port for callers?'],
  [
    /EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|in time/,
    "the network drops it: ask for the gateway's address as it is reached from here, and look at firewalls",
  ],
  [
    /does not match certificate|altnames/i,
    'its certificate names others: use a name that it has, or have it issued for this one. tls-server-name counts for gateway and API server alike',
  ],
  [
    /unable to (get|verify)|self-signed|issuer/i,
    "its CA is not in the cluster's certificate-authority-data, which client-go uses for gateway and API server alike: isthmus login --ca adds the gateway's",
  ],
  [/expired|not yet valid/, "have its certificate renewed, or look at this machine's clock"],
  [/wrong version number|packet length|EPROTO/, 'it does not speak TLS there: is this the right port?'],
  [
    /ECONNRESET|socket hang up|ended the connection/,
    'it closed the connection: is this its port for callers, and does it demand a client certificate?',
  ],
];

function planOf({ context, server, proxy }: KubeContext) {
  if (!proxy)
    throw new Stop(
      `${context} goes to ${server} without a proxy`,
      'isthmus login TENANT --gateway URL writes a context that goes through a gateway',
    );
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url?.protocol !== 'https:')
    throw new Stop(`${context} has no https:// server`, "correct the cluster's server in the kubeconfig");
  const host = bare(proxy.hostname);
  const port = Number(proxy.port || (proxy.protocol === 'https:' ? 443 : 80));
  const target = { host: bare(url.hostname), authority: `${url.hostname}:${url.port || 443}` };
  return { proxy, host, port, target, detail: `${context}: ${target.authority} through ${proxy.origin}` };
}

function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}

async function resolved(host: string, signal: AbortSignal) {
  if (isIP(host) !== 0) return { address: host, detail: `${host} is an address` };
  const { address } = await orAborted(lookup(host), signal);
  return { address, detail: `${host} is ${address}` };
}

/** Waits for what cannot be aborted. */
async function orAborted<T>(wanted: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  return await Promise.race([wanted, once(signal, 'abort').then(() => Promise.reject(signal.reason))]);
}

async function opened(host: string, port: number, sockets: Socket[], signal: AbortSignal) {
  const socket = connectTcp({ host, port });
  sockets.push(socket);
  await once(socket, 'connect', { signal });
  return { socket, detail: `${host} port ${port} accepts` };
}

/** TLS as client-go makes it: the cluster's CA data and tls-server-name, for gateway and API server alike. */
async function secured(below: Socket, host: string, context: KubeContext, sockets: Socket[], signal: AbortSignal) {
  const { ca, insecure, serverName = host } = context;
  const servername = isIP(serverName) === 0 ? serverName : '';
  const options = {
    socket: below,
    host: serverName,
    servername,
    rejectUnauthorized: !insecure,
    ALPNProtocols: ['http/1.1'],
  };
  const socket = connectTls({ ...options, ...(ca !== undefined && { ca }) });
  sockets.push(socket);
  const closed = once(socket, 'close', { signal }).then(() => Promise.reject(new Error('it ended the connection')));
  await Promise.race([once(socket, 'secureConnect', { signal }), closed]);
  const { subject, issuer, valid_to: until } = socket.getPeerCertificate();
  const name = subject?.CN ?? '(no name)';
  const by = ca === undefined ? "one of the system's CAs" : `${issuer?.CN ?? 'a CA'}, of the kubeconfig's CA data`;
  return {
    socket,
    detail: insecure ? `${name}, unchecked (insecure-skip-tls-verify)` : `${name} by ${by}, until ${until}`,
  };
}

async function tunnelled(socket: Socket, proxy: URL, authority: string, signal: AbortSignal) {
  const user = decodeURIComponent(proxy.username);
  const token = decodeURIComponent(proxy.password);
  const basic = Buffer.from(`${user}:${token}`).toString('base64');
  const authorization = user === '' ? '' : `Proxy-Authorization: Basic ${basic}\r\n`;
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${authorization}\r\n`);
  const { status, fields } = await headOf(socket, signal);
  if (status >= 200 && status < 300) return { detail: `open to ${authority}, as tenant ${user || '(none)'}` };
  if (status === 407) throw refused(user, token);
  const { code, details } = proxyStatusOf(fields.get('proxy-status') ?? '');
  if (status === 0)
    throw new Stop(
      'what answers is no HTTP proxy',
      proxy.protocol === 'http:'
        ? 'a gateway speaks TLS there: write https:// in proxy-url'
        : 'is this the port for callers?',
    );
  const text = [`the gateway answers ${status}`, code, details].filter((each) => each !== '').join(': ');
  throw new Stop(text, code === '' ? "read the gateway's log" : adviceFor(code));
}

function refused(user: string, token: string): Stop {
  if (user === '') return new Stop('407: no token was sent', 'isthmus login TENANT writes one into proxy-url');
  const expiry = expiryOf(token);
  if (expiry !== undefined && expiry < Date.now())
    return new Stop(
      `407: the token of ${user} expired at ${isoTime(expiry)}`,
      'log in again; with a command behind -- the next kubectl call renews it, and the one after uses it',
    );
  return new Stop(
    `407: the gateway does not take the token for tenant ${user}`,
    "is the tenant's name right, and is the token's issuer, audience or hash in the tenant's file? The gateway's log and isthmus status say why",
  );
}

/** Reads the first member of Proxy-Status (RFC 9209). */
function proxyStatusOf(text: string): { readonly code: string; readonly details: string } {
  const code = /;\s*error=([\w-]+)/.exec(text)?.[1] ?? '';
  const details = /;\s*details="((?:[^"\\]|\\.)*)"/.exec(text)?.[1]?.replaceAll(/\\(.)/g, '$1') ?? '';
  return { code, details };
}

async function answered(socket: Socket, authority: string, signal: AbortSignal) {
  socket.write(`GET /version HTTP/1.1\r\nHost: ${authority}\r\nUser-Agent: isthmus\r\nConnection: close\r\n\r\n`);
  const { status } = await headOf(socket, signal);
  if (status === 0)
    throw new Stop('no HTTP server answers', "is the cluster's server in the kubeconfig its API server?");
  const who = status === 401 || status === 403 ? ': it wants to know who asks, which kubectl says' : '';
  return { detail: `the API server answers ${status}${who}` };
}

interface Head {
  /** 0 if it is no HTTP. */
  readonly status: number;
  readonly fields: ReadonlyMap<string, string>;
}

/** Reads the head of an answer and no byte behind it. */
async function headOf(socket: Socket, signal: AbortSignal): Promise<Head> {
  let text = '';
  while (!text.includes('\r\n\r\n')) {
    const chunk = socket.read() as Buffer | null;
    if (chunk === null) {
      if (socket.readableEnded || socket.destroyed) break;
      await Promise.race([once(socket, 'readable', { signal }), once(socket, 'end', { signal })]);
      continue;
    }
    text += chunk.toString('latin1');
    if (text.length > ISTHMUS.headBytes || !'HTTP/1.'.startsWith(text.slice(0, 7))) break;
  }
  const [head = '', ...behind] = text.split('\r\n\r\n');
  const rest = behind.join('\r\n\r\n');
  if (rest !== '') socket.unshift(Buffer.from(rest, 'latin1'));
  const [first = '', ...lines] = head.split('\r\n');
  if (text === '') throw new Error('it ended the connection');
  const fields = lines.map(
    (line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()] as const,
  );
  return { status: Number(/^HTTP\/1\.[01] (\d{3})/.exec(first)?.[1] ?? 0), fields: new Map(fields) };
}
