import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import test from 'node:test';
import { promisify } from 'node:util';
import { freePort, goMissing, goProgram, type Identity, Scope, split } from '../harness/index.ts';

const RUN_MS = 5 * 60_000;

/** Cases that are meant to fail, by h2spec's ids, each with its reason. */
type Expected = Readonly<Record<string, string>>;

const ANYWHERE: Expected = {
  'generic/2/2': 'wants a body in the answer: no port of ours serves pages',
  'generic/2/3': 'likewise',
  'http2/5.1.2/1': 'its requests are answered at once, so that they never are open together',
  'http2/5.3.1/1': 'RFC 9113 section 5.3.2 gave up priorities, which are passed over',
  'http2/5.3.1/2': 'likewise',
  'http2/3.5/2': 'the port takes HTTP/1.1 too, which is what answers to another preface',
};

const CALLERS: Expected = {
  ...ANYWHERE,
  'http2/6.10/1': 'callers may send 16 KiB of fields; what is sent are more',
};

const LINKS: Expected = {
  ...ANYWHERE,
  'http2/4.2/3': 'the port takes frames of 64 KiB and says so; what is sent are 20 KB',
};

const GRPC = { method: 'POST', headers: { 'content-type': 'application/grpc', te: 'trailers' } };

test('h2spec finds only the listed failures, on each HTTP/2 port', {
  skip: goMissing(),
  concurrency: true,
}, async (t) => {
  await using scope = new Scope();
  const peerPort = await freePort();
  const plane = await split(scope, {
    gateways: 1,
    hubs: 1,
    agents: 1,
    hubFlags: { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` },
  });
  const [{ mtls }, { agentPort }] = [plane.gateways[0]!, plane.hubs[0]!];
  const { agents, peers } = plane.trust;
  const connect = { ...GRPC, headers: { ...GRPC.headers, agentid: 'h2spec' } };
  const ports: readonly [name: string, target: H2specTarget, expected: Expected][] = [
    ["callers' port", { ...GRPC, port: mtls.port, identity: mtls.identity, path: '/ProxyService/Proxy' }, CALLERS],
    [
      "agents' port",
      { ...connect, port: agentPort, identity: await agents.client('h2spec'), path: '/AgentService/Connect' },
      ANYWHERE,
    ],
    // A dial is CONNECT, which has no path. h2spec needs a path, so it sends GET; the HTTP/2 of the answer is the same.
    ["peers' port", { method: 'GET', port: peerPort, identity: await peers.peer(['gateway']), path: '/' }, LINKS],
  ];
  // Side by side: a case waits for what must not come.
  const runs = ports.map(([name, target, expected]) =>
    t.test(name, async () => {
      const results = await h2spec(target);
      const failed = results.filter(({ outcome }) => outcome === 'failed');
      const lines = failed.map(
        ({ id, desc, expected, actual }) => `${id} ${desc}: expected ${expected}, got ${actual}`,
      );
      assert.ok(results.length > 140, `${results.length} cases`);
      const others = failed.map(({ id }) => id).filter((id) => !(id in expected));
      assert.deepEqual(others, [], lines.join('\n'));
    }),
  );
  await Promise.all(runs);
});

interface H2specTarget {
  /** A port of 127.0.0.1, with TLS and ALPN `h2`. */
  readonly port: number;
  /** Shown if the port asks for a client certificate. */
  readonly identity: Identity;
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The result of one of h2spec's cases. */
interface H2specResult {
  /** `http2/6.5.3/1`: the suite, the section and the case. */
  readonly id: string;
  readonly desc: string;
  readonly outcome: 'passed' | 'failed' | 'skipped';
  readonly expected?: string;
  readonly actual?: string;
}

/** Runs every case of h2spec (https://github.com/summerwind/h2spec) against a port. */
async function h2spec({ port, identity, method, path, headers = {} }: H2specTarget): Promise<H2specResult[]> {
  const program = await goProgram('h2spec', { patch: ownHeaders });
  const fields = Object.entries(headers).flatMap(([name, value]) => ['-header', `${name}=${value}`]);
  const { stdout } = await promisify(execFile)(
    program,
    ['-port', `${port}`, '-cert', identity.cert, '-key', identity.key, '-method', method, '-path', path, ...fields],
    { timeout: RUN_MS, maxBuffer: 16 << 20 },
  );
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as H2specResult);
}

/** h2spec builds its request in a function. As a variable, our program can replace it. */
async function ownHeaders(vendor: string): Promise<void> {
  const path = `${vendor}/github.com/summerwind/h2spec/spec/util.go`;
  const source = await readFile(path, 'utf8');
  const changed = source.replace(/^func CommonHeaders\(/m, 'var CommonHeaders = commonHeaders\n\nfunc commonHeaders(');
  if (changed === source) throw new Error(`${path} has no func CommonHeaders`);
  await writeFile(path, changed);
}
