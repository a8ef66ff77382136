import type { Socket } from 'node:net';
import { asked, DialError } from '@isthmus/client/gateways';
import { inWords } from '@isthmus/tunnel';
import { type Call, command } from '../command.ts';
import { type KubeContext, Kubeconfig, kubeContext } from '../kubeconfig.ts';
import { EXIT, verdictsText } from '../output.ts';
import { bare, opened, resolved, Stop, secured, tunnelled } from '../through-gateway.ts';
import { kubeconfigOption } from './login.ts';

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
  options: [kubeconfigOption],
  examples: {
    why: 'the current context',
    'why --context isthmus-acme -o json': 'another one, for programs',
  },
  asksNobody: () => true,
  async run({ options, output, terminal }: Call<{ readonly kubeconfig?: string }>) {
    const config = Kubeconfig.read(Kubeconfig.locate(terminal, options.kubeconfig));
    const context = await kubeContext(config, options.context);
    const signal = AbortSignal.any([terminal.interrupted, AbortSignal.timeout(options.timeout)]);
    const steps = await stepsOf(context, signal);
    const ok = steps.every((step) => step.ok);
    output.show({ context: context.context, ok, steps }, ({ steps: shown }, style) => {
      const lines = shown.map((step) => ({ ...step, name: step.step, outcome: step.ok ? 'pass' : 'fail' }) as const);
      return verdictsText(lines, style);
    });
    return ok ? EXIT.good : EXIT.wrong;
  },
});

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
    const { addresses } = await step('name', () => resolved(host, signal));
    const { socket } = await step('address', () => opened(addresses, port, sockets, signal));
    const gateway =
      proxy.protocol === 'https:'
        ? await step('gateway', () => secured(socket, host, context, sockets, signal))
        : { socket };
    await step('tunnel', () => tunnelled(gateway.socket, proxy, target.authority, signal));
    const server = await step('server', () => secured(gateway.socket, target.host, context, sockets, signal));
    await step('answer', () => answered(server.socket, target.authority, context, signal));
  } catch (error) {
    if (error !== STOPPED) throw error;
  } finally {
    for (const socket of sockets) socket.destroy();
  }
  return steps;
}

const STOPPED = new Error('a step failed');

const FAULTS: readonly (readonly [RegExp, string])[] = [
  [/ENOTFOUND/, 'the name does not resolve on this machine: is it spelt right, and is a VPN missing?'],
  [
    /EAI_AGAIN|EAI_FAIL|ETIMEOUT/,
    'no resolver answers on this machine: see /etc/resolv.conf, and whether a VPN is missing',
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
    /ECONNRESET|socket hang up|(closed|ended) the connection/,
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

/** What every user may read that an API server knows, and nobody else. `/version` answers strangers too. */
const FOR_USERS = '/api';

async function answered(socket: Socket, authority: string, context: KubeContext, signal: AbortSignal) {
  const { user, token, cert, nameless } = context;
  const proves = (token !== undefined && /^[\x21-\x7e]+$/.test(token)) || cert !== undefined;
  const bearer = token !== undefined && proves ? `Authorization: Bearer ${token}\r\n` : '';
  const path = proves ? FOR_USERS : '/version';
  const head = `GET ${path} HTTP/1.1\r\nHost: ${authority}\r\nUser-Agent: isthmus\r\n${bearer}Connection: close\r\n\r\n`;
  const { status } = await asked(socket, head, signal).catch((error) => {
    if (!(error instanceof DialError)) throw error;
    throw new Stop('no HTTP server answers', "is the cluster's server in the kubeconfig its API server?");
  });
  const answers = `the API server answers ${status}`;
  const give = `kubectl config set-credentials ${user || 'NAME'} --token=TOKEN`;
  if (nameless)
    throw new Stop(
      `${answers}, but user ${user || '(none)'} has no credential: kubectl asks for a name and a password`,
      give,
    );
  if (proves && status === 401) throw new Stop(`${answers}: it does not know the credential of user ${user}`, give);
  const who = status === 401 || status === 403 ? ': it wants to know who asks, which kubectl says' : '';
  return { detail: `${answers}${who}` };
}
