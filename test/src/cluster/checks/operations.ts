import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { must, run } from '../command.ts';
import { kubectl, kubectlArgs, tryKubectl } from '../kubernetes.ts';
import { GROUP, NAMESPACE } from '../probe.ts';
import { Session } from '../session.ts';
import { piped, request, send, sumOf } from './bytes.ts';
import type { Check } from './check.ts';

const BULK = 200_000_000;
const FORWARDED = 1_000_000_000;
const BULK_MS = 300_000;

const inProbe = (...args: string[]) => ['-n', NAMESPACE, ...args];
const rate = (bytes: number, start: number) => `${(bytes / 1e3 / (performance.now() - start)).toFixed(0)} MB/s`;

export const OPERATIONS: readonly Check[] = [
  {
    name: 'logs',
    async run({ pod }) {
      const lines = await kubectl(inProbe('logs', pod, '--tail=3'));
      assert.match(lines, /^(tick \d+\n){3}$/);
      return lines.trim().split('\n').at(-1) ?? '';
    },
  },
  {
    name: 'logs -f',
    async run({ pod, scope }) {
      const session = new Session(scope, inProbe('logs', '-f', '--tail=1', pod));
      const [, first] = await session.line(/^tick (\d+)$/);
      const later = Number(first) + 10;
      await session.line(new RegExp(`^tick ${later}$`));
      return `tick ${first} to tick ${later}`;
    },
  },
  {
    name: 'exec',
    async run({ pod }) {
      return (await kubectl(inProbe('exec', pod, '--', 'id'))).trim();
    },
  },
  {
    name: 'exec: exit status and stderr',
    async run({ pod }) {
      const { status, stdout, stderr } = await tryKubectl(
        inProbe('exec', pod, '--', 'sh', '-c', 'echo out; echo err >&2; exit 7'),
      );
      assert.deepEqual([status, stdout], [7, 'out\n']);
      assert.match(stderr, /^err$/m);
      return 'status 7';
    },
  },
  {
    name: 'exec: terminal',
    async run({ pod }) {
      // kubectl tells the size once the command runs.
      const shell = `'tty; until stty size | grep -v ^0; do sleep 0.1; done; exit 3'`;
      const command = kubectlArgs(inProbe('exec', '-it', pod, '--', 'sh', '-c', shell));
      const terminal = `stty rows 37 cols 91; ${command.join(' ')}`;
      const { status, stdout } = await run(['script', '-qec', terminal, '/dev/null']);
      assert.match(stdout, /\/dev\/pts\/0\r?\n.*37 91/);
      assert.equal(status, 3);
      return 'pts/0, 37 by 91, status 3';
    },
  },
  {
    name: 'exec: 200 MB, there and back at once',
    async run({ pod }) {
      const start = performance.now();
      const child = piped(inProbe('exec', '-i', pod, '--', 'cat'), BULK_MS);
      const ended = once(child, 'exit');
      const [sent, got] = await Promise.all([send(child.stdin, BULK), sumOf(child.stdout)]);
      assert.deepEqual(got, { sum: sent, bytes: BULK });
      assert.deepEqual(await ended, [0, null]);
      return `SHA-256 equal, ${rate(BULK, start)} each way`;
    },
  },
  {
    name: 'cp, there and back',
    async run({ pod, directory }) {
      const [there, back] = ['there', 'back'].map((name) => join(directory, name)) as [string, string];
      writeFileSync(there, randomBytes(20_000_000));
      await kubectl(['cp', there, `${NAMESPACE}/${pod}:/tmp/copied`]);
      await kubectl(['cp', `${NAMESPACE}/${pod}:/tmp/copied`, back]);
      assert.ok(readFileSync(there).equals(readFileSync(back)), 'the copy of the copy is not the file');
      return '20 MB';
    },
  },
  {
    name: 'attach',
    async run({ pod, scope }) {
      const session = new Session(scope, inProbe('attach', '-i', pod));
      await session.line(/^tick \d+$/);
      session.write('hello\n');
      return (await session.line(/^read hello$/))[0];
    },
  },
  {
    name: 'port-forward: 1 GB down, 200 MB up',
    async run({ pod, scope }) {
      const session = new Session(scope, inProbe('port-forward', pod, ':8080'));
      const [, port] = await session.line(/^Forwarding from 127\.0\.0\.1:(\d+)/);
      const start = performance.now();
      const down = await request(Number(port), `/bytes?n=${FORWARDED}`);
      const speed = rate(FORWARDED, start);
      assert.deepEqual([down.bytes, down.sum], [FORWARDED, down.theirs]);
      const up = await request(Number(port), '/sum', BULK);
      assert.equal(up.theirs, up.sum);
      return `SHA-256 equal, ${speed} down`;
    },
  },
  {
    name: 'port-forward to a service',
    async run({ scope }) {
      const session = new Session(scope, inProbe('port-forward', 'service/probe', ':80'));
      const [, port] = await session.line(/^Forwarding from 127\.0\.0\.1:(\d+)/);
      const answer = await must(['curl', '--fail', '--silent', '--max-time', '20', `http://127.0.0.1:${port}/from`]);
      return answer.trim();
    },
  },
  {
    name: 'pod proxy',
    async run({ pod }) {
      return proxied(`/api/v1/namespaces/${NAMESPACE}/pods/${pod}:8080/proxy/from`, /^probe-\S+ called from/);
    },
  },
  {
    name: 'service proxy',
    async run() {
      return proxied(`/api/v1/namespaces/${NAMESPACE}/services/http:probe:http/proxy/from`, /^probe-\S+ called from/);
    },
  },
  {
    name: 'service proxy, TLS',
    async run() {
      return proxied(`/api/v1/namespaces/${NAMESPACE}/services/https:probe:https/proxy/from`, /^probe-\S+ called from/);
    },
  },
  {
    name: 'node proxy',
    async run() {
      return proxied('/api/v1/nodes/node/proxy/metrics/resource', /^node_cpu_usage_seconds_total \S+/m);
    },
  },
  {
    name: 'aggregated API',
    async run() {
      const list = JSON.parse(await kubectl(['get', '--raw', `/apis/${GROUP}/v1/visits`]));
      assert.equal(list.kind, 'VisitList');
      return `from ${list.items[0].from}`;
    },
  },
  {
    name: 'webhook admits',
    async run() {
      const { status, stderr } = await tryKubectl(
        inProbe('create', 'configmap', named('admitted'), '--from-literal=a=b'),
      );
      assert.equal(status, 0, stderr);
      assert.match(stderr, /Warning: seen by the probe/);
      return 'with its warning';
    },
  },
  {
    name: 'webhook refuses',
    async run() {
      const { status, stderr } = await tryKubectl(
        inProbe('create', 'configmap', named('refused'), '--from-literal=refuse=yes'),
      );
      assert.equal(status, 1);
      assert.match(stderr, /refused by the probe/);
      return 'with its reason';
    },
  },
];

async function proxied(path: string, pattern: RegExp): Promise<string> {
  const [found] = (await kubectl(['get', '--raw', path])).match(pattern) ?? [];
  assert.ok(found, `${path} answered something else`);
  return found;
}

function named(what: string): string {
  return `${what}-${randomBytes(4).toString('hex')}`;
}
