import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { startAdmission } from '@isthmus/admission';
import { CertificateAuthority } from '@isthmus/certificates';
import { until } from '@isthmus/runtime/testing';
import { Closing } from '@isthmus/service';
import { planeEvents } from '@isthmus/tunnel';

const DAY = 86_400_000;

const TENANTS = 300;

/** The most that a tenant may cost, in bytes: its file, two CA bundles, a certificate and a key. */
const MOST = 24 * 1024;

/** Memory in use, on the heap and beside it. Deno has no switch for garbage collection in a running process. */
function collected(): () => number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  return () => {
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
}

/** The memory once two looks agree: garbage of before would hide what comes. */
async function atRest(used: () => number): Promise<number> {
  let last = Number.POSITIVE_INFINITY;
  const look = () => {
    const now = used();
    const rests = Math.abs(now - last) < TENANTS * 100;
    last = now;
    return rests && now;
  };
  return until(look, { what: 'memory to rest', every: 500 });
}

test('a tenant costs less than 24 KB', { skip: 'Deno' in globalThis }, async (context) => {
  const used = collected();
  const dir = await mkdtemp(join(tmpdir(), 'tenants-'));
  context.after(() => rm(dir, { recursive: true }));
  const servers = await CertificateAuthority.create('servers', DAY);
  const { cert, key } = await servers.issue({ commonName: 'x', validMs: DAY, uses: ['server'] });
  const put = (name: string, text: string) => writeFile(join(dir, name), text);
  const add = async (name: string) => {
    for (const edge of ['agents', 'callers'])
      await put(`${name}-${edge}.crt`, (await CertificateAuthority.create('kubernetes', DAY)).cert);
    await put(`${name}.crt`, cert);
    await put(`${name}.key`, key);
    await put(
      `${name}.yaml`,
      `tenant: ${name}
server: {serverNames: [${name}.example], certificate: ${name}.crt, key: ${name}.key}
agents: [{certificates: {ca: ${name}-agents.crt}}]
claims: {cidr: [10.0.0.0/8], host: ["*.${name}.example"]}
callers: [{certificates: {ca: ${name}-callers.crt, names: [kube-apiserver]}}]
dial: {deny: [{cidr: 10.0.0.10/32}], allow: [{cidr: 10.0.0.0/8, ports: [443, 10250]}]}
limits: {agents: 500, dialsPerSecond: 200, tunnels: 5000}`,
    );
  };
  const follow = async () => {
    const closing = new Closing();
    const bundles = { agent: '', caller: '' };
    const { tenants, problems } = await startAdmission({
      dir,
      bundles,
      rememberMs: 0,
      tokensOf: [],
      events: planeEvents(),
      closing,
    });
    assert.deepEqual(problems, []);
    return { tenants, close: () => closing.close() };
  };
  await add('t0');
  // The first tenant also pays for what is loaded once.
  await (await follow()).close();
  for (let index = 1; index < TENANTS; index++) await add(`t${index}`);
  const before = await atRest(used);
  const followed = await follow();
  const each = () => (used() - before) / TENANTS;
  // What reading the files took is let go of a second later.
  await until(
    () => each() < MOST,
    () => `a tenant to cost less; it costs ${Math.round(each())} bytes`,
  );
  // Before its directory goes: a look at that time would report it.
  await followed.close();
  assert.equal(followed.tenants.size, TENANTS);
});
