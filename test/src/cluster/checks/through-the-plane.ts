import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chownSync, copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createDialer } from '@isthmus/client';
import { parse } from 'yaml';
import { must } from '../command.ts';
import { kubectl, tryKubectl } from '../kubernetes.ts';
import { NAMESPACE } from '../probe.ts';
import { isthmus, SERVER } from '../recipe.ts';
import { Session } from '../session.ts';
import { ADDRESS } from '../settings.ts';
import { manifestOf, readPod, type StaticPod } from '../static-pods.ts';
import { change } from '../upstream.ts';
import type { Check, Context } from './check.ts';

const PORT = 8090;
const GATEWAY = `https://${ADDRESS}:${PORT}`;
const API_SERVER = `https://${ADDRESS}:6443`;
const IDENTITY = '/etc/kubernetes/konnectivity';
const TOKENS = join(IDENTITY, 'callers');
const TENANT = 'default';
const ANSWER_MS = 30_000;

/** Who calls the API server through the plane: a token for the gateway, and what the API server asks for. */
interface Caller {
  readonly token: string;
  readonly kubeconfig: string;
}

/** docs/TENANTS.md, "Callers by token": tools reach the API server through the plane, as from outside the cluster's network. */
export const THROUGH_THE_PLANE: readonly Check[] = [
  {
    name: 'through the plane, by token: kubectl and @isthmus/client',
    async run(context) {
      const caller = await logIn(context);
      return `${await withKubectl(context, caller)}; client: ${await withClient(context, caller)}`;
    },
  },
];

/** Gives the server a port for tools, and writes a context by `isthmus login`. */
async function logIn({ scope, directory }: Context): Promise<Caller> {
  const { token, line } = JSON.parse(await isthmus(['tenants', 'token', TENANT, '--name', 'tools', '-o', 'json']));
  writeFileSync(TOKENS, `${line}\n`, { mode: 0o400 });
  chownSync(TOKENS, 65532, 65532);
  const pod = readPod(manifestOf(SERVER));
  scope.defer(() => change(pod));
  await change(withPort(pod));
  const [kubeconfig, file] = [join(directory, 'through.conf'), join(directory, 'tools.token')];
  copyFileSync('/etc/kubernetes/admin.conf', kubeconfig);
  writeFileSync(file, token);
  await isthmus(['login', TENANT, '--gateway', GATEWAY, '--token-file', file, '--kubeconfig', kubeconfig]);
  return { token, kubeconfig };
}

/** The cluster's CA signs the certificate of the server already, so kubectl trusts it. */
function withPort(pod: StaticPod): StaticPod {
  const copy = structuredClone(pod);
  const [container] = copy.spec.containers;
  const others = (container.args ?? []).filter((flag) => !flag.startsWith('--server-port='));
  const [cert, key] = ['tls.crt', 'tls.key'].map((name) => join(IDENTITY, name));
  container.args = [
    ...others,
    `--server-port=${PORT}`,
    `--server-cert=${cert}`,
    `--server-key=${key}`,
    `--caller-token-file=${TOKENS}`,
  ];
  return copy;
}

async function withKubectl({ scope, pod, directory }: Context, { token, kubeconfig }: Caller): Promise<string> {
  const through = (...args: string[]) => [`--kubeconfig=${kubeconfig}`, '-n', NAMESPACE, ...args];
  assert.match(await kubectl(through('get', 'pod', pod, '-o=name')), new RegExp(`^pod/${pod}\n$`));
  assert.match(await kubectl(through('logs', pod, '--tail=3')), /^(tick \d+\n){3}$/);
  const { status, stdout } = await tryKubectl(through('exec', pod, '--', 'sh', '-c', 'echo out; exit 7'));
  assert.deepEqual([status, stdout], [7, 'out\n']);
  const name = `through-${randomBytes(4).toString('hex')}`;
  const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name }, data: { a: 'b' } };
  await kubectl(through('apply', '-f', '-'), { input: JSON.stringify(object) });
  assert.equal(await kubectl(['-n', NAMESPACE, 'get', 'configmap', name, '-o=jsonpath={.data.a}']), 'b');
  const session = new Session(scope, through('port-forward', pod, ':8080'));
  const [, port] = await session.line(/^Forwarding from 127\.0\.0\.1:(\d+)/);
  const answer = await must(['curl', '--fail', '--silent', '--max-time', '20', `http://127.0.0.1:${port}/from`]);
  assert.match(answer, /called from/);
  // Another token leads nowhere, so all of that went through the plane.
  const wrong = join(directory, 'wrong.conf');
  writeFileSync(wrong, readFileSync(kubeconfig, 'utf8').replaceAll(token, `${token.slice(0, -4)}AAAA`));
  const refused = await tryKubectl([`--kubeconfig=${wrong}`, 'get', 'nodes']);
  assert.match(refused.stderr, /Proxy Authentication Required|407|not a token of/);
  return 'get, logs, exec with status 7, apply, port-forward; a wrong token is refused';
}

async function withClient({ scope, pod }: Context, { token }: Caller): Promise<string> {
  const { users } = parse(readFileSync('/etc/kubernetes/admin.conf', 'utf8'));
  const data = (name: string) => Buffer.from(users[0].user[name], 'base64');
  const ca = readFileSync('/etc/kubernetes/pki/ca.crt');
  const dialer = createDialer({ gateway: GATEWAY, ca, credentials: { tenant: TENANT, token } });
  const dispatcher = dialer.dispatcher({ ca, cert: data('client-certificate-data'), key: data('client-key-data') });
  const signal = AbortSignal.any([scope.signal, AbortSignal.timeout(ANSWER_MS)]);
  // The types of browsers do not know what Node takes.
  const options = { dispatcher, signal } as RequestInit;
  const pods = `${API_SERVER}/api/v1/namespaces/${NAMESPACE}/pods`;
  const got = (await (await fetch(`${pods}/${pod}`, options)).json()) as { kind: string };
  assert.equal(got.kind, 'Pod');
  const watch = await fetch(`${pods}?watch=1&resourceVersion=0`, options);
  for await (const chunk of watch.body ?? []) {
    assert.match(Buffer.from(chunk).toString(), /"type":"ADDED"/);
    break;
  }
  const query = new URLSearchParams([
    ...['sh', '-c', 'echo out; exit 7'].map((word) => ['command', word]),
    ['stdout', 'true'],
  ] as [string, string][]);
  const protocol = { protocols: 'v5.channel.k8s.io', dispatcher } as object as string[];
  const exec = new WebSocket(`${pods}/${pod}/exec?${query}`.replace(/^https/, 'wss'), protocol);
  exec.binaryType = 'arraybuffer';
  /** What comes on each channel: 1 is standard output, 3 how the command ended. */
  const channels: Record<number, string> = {};
  exec.addEventListener('message', ({ data: message }) => {
    const [channel = 0, ...bytes] = new Uint8Array(message);
    channels[channel] = `${channels[channel] ?? ''}${Buffer.from(bytes)}`;
  });
  await once(exec, 'close', { signal });
  assert.equal(channels[1], 'out\n');
  assert.match(channels[3] ?? '', /"reason":"ExitCode","message":"7"/);
  return 'get, watch, exec with status 7';
}
