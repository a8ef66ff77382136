import assert from 'node:assert/strict';
import { must, run } from '../command.ts';
import { kubectl } from '../kubectl.ts';
import { GROUP, inProbe, NAMESPACE } from '../probe.ts';
import { paste } from '../recipe.ts';
import { Session } from '../session.ts';
import type { Check } from '../step.ts';

const BULK = 200_000_000;
const FORWARDED = 1_000_000_000;
const BULK_MS = 300_000;
const ANSWER = /^probe-\S+ called from \S+/;

export const OPERATIONS: readonly Check[] = [
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
    name: 'exec: output, stderr and status',
    async run({ pod }) {
      const { status, stdout, stderr } = await run(
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
      const command = inProbe('exec', '-it', pod, '--', 'sh', '-c', shell);
      const terminal = `stty rows 37 cols 91; ${command.join(' ')}`;
      const { status, stdout } = await run(['script', '-qec', terminal, '/dev/null']);
      assert.match(stdout, /\/dev\/pts\/0\r?\n.*37 91/);
      assert.equal(status, 3);
      return 'pts/0, 37 by 91, status 3';
    },
  },
  {
    name: 'exec: 200 MB, there and back at once',
    async run({ pod, directory }) {
      const exec = inProbe('exec', '-i', pod, '--', 'cat').join(' ');
      return sameSums(directory, `sha256sum < bulk; ${exec} < bulk | sha256sum`);
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
    async run({ pod, directory, scope }) {
      const session = new Session(scope, inProbe('port-forward', pod, ':8080'));
      const [, at] = await session.line(/^Forwarding from (127\.0\.0\.1:\d+)/);
      const curl = 'curl --silent --show-error --fail';
      // The probe's sum of what it sends comes in a trailer.
      const down = `${curl} --dump-header head 'http://${at}/bytes?n=${FORWARDED}' | sha256sum; cat head`;
      const up = `sha256sum < bulk; ${curl} --request POST --upload-file bulk http://${at}/sum`;
      return sameSums(directory, `${down}; ${up}`);
    },
  },
  answering('pod proxy', (pod) => `/api/v1/namespaces/${NAMESPACE}/pods/${pod}:8080/proxy/from`, ANSWER),
  answering(
    'service proxy, TLS',
    () => `/api/v1/namespaces/${NAMESPACE}/services/https:probe:https/proxy/from`,
    ANSWER,
  ),
  answering(
    "proxy to the pod's node",
    async (pod) => {
      const node = await must(inProbe('get', 'pod', pod, '-o=jsonpath={.spec.nodeName}'));
      return `/api/v1/nodes/${node}/proxy/metrics/resource`;
    },
    /^node_cpu_usage_seconds_total \S+/m,
  ),
  answering('aggregated API', () => `/apis/${GROUP}/v1/visits`, /"from":".*"kind":"VisitList"/),
  {
    name: 'webhook: admits and refuses',
    async run() {
      const create = (literal: string) =>
        run(inProbe('create', 'configmap', 'asked', '--dry-run=server', `--from-literal=${literal}`));
      const [admitted, refused] = [await create('a=b'), await create('refuse=yes')];
      assert.deepEqual([admitted.status, refused.status], [0, 1], admitted.stderr);
      assert.match(admitted.stderr, /Warning: seen by the probe/);
      assert.match(refused.stderr, /refused by the probe/);
      return 'with its warning, with its reason';
    },
  },
];

/** Runs commands that print SHA-256 sums, of what is sent and of what comes, in turns. They find 200 MB in a file. */
async function sameSums(directory: string, commands: string): Promise<string> {
  const bulk = `test -e bulk || head -c ${BULK} /dev/urandom > bulk`;
  const said = await paste(`${bulk}; ${commands}`, { cwd: directory, deadline: BULK_MS });
  const sums = said.match(/\b[0-9a-f]{64}\b/g) ?? [];
  const [sent, come] = [0, 1].map((odd) => sums.filter((_, index) => index % 2 === odd));
  assert.ok(sums.length > 0, said);
  assert.deepEqual(come, sent);
  return 'SHA-256 equal';
}

/** A GET, for which the API server dials. */
function answering(name: string, pathOf: (pod: string) => string | Promise<string>, pattern: RegExp): Check {
  return {
    name,
    async run({ pod }) {
      const answer = await kubectl(['get', '--raw', await pathOf(pod)]);
      assert.match(answer, pattern);
      return answer.match(pattern)?.[0] ?? '';
    },
  };
}
