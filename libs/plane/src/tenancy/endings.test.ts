import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { CertificateAuthority } from '@isthmus/certificates';
import { certificateOf } from '@isthmus/runtime';
import { keyPair } from '@isthmus/runtime/testing';
import { Closing } from '@isthmus/service';
import { planeEvents } from '@isthmus/tunnel';
import { SignJWT } from 'jose';
import { startTenancy } from './start-tenancy.ts';

/** What the plane promises, in milliseconds of its own clock. */
const PROMISE = 10_000;

/** How far the clock is moved at a time, in milliseconds. */
const STEP = 1000;

const DAY = 86_400_000;

/** How long an event may take that no clock brings, in milliseconds. */
const DEADLINE = 60_000;

const acme = await CertificateAuthority.create('kubernetes', DAY);
const next = await CertificateAuthority.create('kubernetes', DAY);

const spki = ({ publicKey }: ReturnType<typeof keyPair>) => publicKey.export({ format: 'pem', type: 'spki' }) as string;

function token({ privateKey }: ReturnType<typeof keyPair>, seconds: number): Promise<string> {
  return new SignJWT({})
    .setProtectedHeader({ alg: 'ES256' })
    .setIssuer('https://issuer.example')
    .setAudience('hub')
    .setSubject('agent')
    .setExpirationTime(Math.floor(Date.now() / 1000) + seconds)
    .sign(privateKey);
}

/** A tenancy whose clock the test moves. */
async function tenancyAt(context: TestContext, files: Readonly<Record<string, string>>) {
  const dir = await mkdtemp(join(tmpdir(), 'endings-'));
  context.after(() => rm(dir, { recursive: true }));
  const write = async (name: string, text: string) => {
    await writeFile(join(dir, 'new'), text);
    await rename(join(dir, 'new'), join(dir, name));
  };
  for (const [name, text] of Object.entries(files)) await write(name, text);
  const { timers } = context.mock;
  timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: Date.now() });
  // A look at the directory ends by setting the timer of the next one. By hand: a mock of the stopped timer would give that back to other tests.
  const { setTimeout: stopped } = globalThis;
  let [clock, armed, looks, nextMs] = [0, 0, 0, 0];
  globalThis.setTimeout = ((run: () => void, ms = 0) => {
    looks++;
    nextMs = ms;
    return stopped(run, ms);
  }) as typeof stopped;
  context.after(() => timers.reset());
  const closing = new Closing();
  const flags = { 'cipher-suites': [], 'tls-min-version': '', 'token-review-cache-ttl': 30_000 };
  const bundle = files['bundle.crt'] === undefined ? '' : join(dir, 'bundle.crt');
  const tenancy = await startTenancy(
    { ...flags, 'tenants-dir': dir, 'cluster-ca-cert': bundle },
    { closing, events: planeEvents() },
  );
  context.after(() => closing.close());
  assert.ok(tenancy);
  assert.deepEqual(tenancy.problems, []);
  /** Moves the clock by a second, and waits until what that brings is done. */
  const step = async () => {
    const before = looks;
    const due = armed + nextMs;
    clock += STEP;
    timers.tick(STEP);
    if (clock >= due) {
      const end = performance.now() + DEADLINE;
      for (; looks === before; await tick()) assert.ok(performance.now() < end, 'a look at the files');
      armed = clock;
    }
    for (let left = 10; left > 0; left--) await tick();
  };
  const evidence = { source: '10.0.0.1', signal: new AbortController().signal };
  const agent = (shown: Readonly<{ leaf?: string; token?: string }>) => {
    const { leaf, token } = shown;
    const certificate =
      leaf === undefined ? undefined : { leaf: certificateOf(new X509Certificate(leaf).raw), sent: [] };
    return tenancy.identify.agent({
      ...evidence,
      ...(certificate && { certificate }),
      ...(token !== undefined && { token }),
    });
  };
  return { dir, write, step, agent };
}

interface Row {
  readonly ends: readonly string[];
  readonly why: RegExp;
  /** Fields of the tenant's file. */
  readonly more?: string;
  /** How long credentials are valid that expire, in milliseconds. */
  readonly validMs?: number;
  act(write: (name: string, text: string) => Promise<void>, dir: string): Promise<void>;
}

const [signing, rotated] = [keyPair(), keyPair()];

const file = (more = '', ca = '{ca: ca.crt}') => `tenant: acme
agents:
  - {certificates: ${ca}}
  - {certificates: {trustDomain: plane.example}}
  - {tokens: {issuer: "https://issuer.example", audience: hub, keys: keys.pem}}
${more}`;

const plane = await CertificateAuthority.create('plane', DAY);
const edge1 = await acme.issue({ commonName: 'edge-1', validMs: DAY });
const serial = new X509Certificate(edge1.cert).serialNumber;
const WITH_LIST = '{ca: ca.crt, crl: crl.pem}';

const rows: Readonly<Record<string, Row>> = {
  'a certificate expires': { ends: ['edge-1'], why: /its credential expired/, validMs: 3000, act: async () => {} },
  'a token expires': { ends: ['agent'], why: /its credential expired/, validMs: 3000, act: async () => {} },
  'the authority in the tenant file goes': {
    ends: ['edge-1', 'edge-2'],
    why: /authority that issued its certificate was removed/,
    act: (write) => write('ca.crt', next.cert),
  },
  'the authority in the flags goes': {
    ends: ['spiffe'],
    why: /authority that issued its certificate was removed/,
    act: (write) => write('bundle.crt', next.cert),
  },
  'a list revokes a certificate': {
    ends: ['edge-1'],
    why: /is revoked/,
    more: WITH_LIST,
    act: async (write) => write('crl.pem', await acme.revoke([edge1.cert], DAY)),
  },
  'a name is denied': {
    ends: ['edge-1'],
    why: /list of what is denied \(acme\.yaml: deny\.agents\[0\]\)/,
    act: (write) => write('acme.yaml', file('deny: {agents: [edge-1]}')),
  },
  'a serial number is denied': {
    ends: ['edge-1'],
    why: /list of what is denied \(acme\.yaml: deny\.serials\[0\]\)/,
    act: (write) => write('acme.yaml', file(`deny: {serials: ["${serial}"]}`)),
  },
  "the issuer's keys are rotated": {
    ends: ['agent'],
    why: /the key or the entry that accepted its token was removed/,
    act: (write) => write('keys.pem', spki(rotated)),
  },
  'what an agent may claim is narrowed': {
    ends: ['edge-2'],
    why: /claims\.defaultRoute is false \(acme\.yaml: claims\.defaultRoute\)/,
    act: (write) => write('acme.yaml', file('claims: {defaultRoute: false}')),
  },
  'the tenant is removed': {
    ends: ['agent', 'edge-1', 'edge-2', 'spiffe'],
    why: /its tenant was removed/,
    act: (_, dir) => rm(join(dir, 'acme.yaml')),
  },
};

for (const [what, { ends, why, more, validMs, act }] of Object.entries(rows)) {
  test(`when ${what}, what stood on it ends within 10 s, and nothing else`, { timeout: 120_000 }, async (context) => {
    const files = { 'ca.crt': acme.cert, 'bundle.crt': plane.cert, 'keys.pem': spki(signing) };
    const crl = await acme.revoke([], DAY);
    const { dir, write, step, agent } = await tenancyAt(context, {
      ...files,
      ...{ 'crl.pem': crl, 'acme.yaml': file('', more) },
    });
    const expiring = (name: string) => (validMs !== undefined && ends.includes(name) ? validMs : DAY);
    const hosts = [{ type: 'url' as const, value: 'spiffe://plane.example/tenant/acme/agent/spiffe' }];
    const [first, second, third] = await Promise.all([
      validMs === undefined ? edge1 : acme.issue({ commonName: 'edge-1', validMs: expiring('edge-1') }),
      acme.issue({ commonName: 'edge-2', validMs: DAY }),
      plane.issue({ commonName: 'edge-3', validMs: DAY, hosts, uses: ['client'] }),
    ]);
    const grants = [
      await agent({ leaf: first.cert }),
      await agent({ leaf: second.cert }),
      await agent({ leaf: third.cert }),
      await agent({ token: await token(signing, expiring('agent') / 1000) }),
    ];
    const ended = new Map<string, Error>();
    for (const { principal, watch } of grants) {
      const identifiers = { host: [], ipv4: [], ipv6: [], cidr: [], defaultRoute: principal.name === 'edge-2' };
      watch((reason) => void ended.set(principal.name, reason), { agentId: principal.name, identifiers });
    }
    // Between two looks.
    await step();
    await act(write, dir);
    // A credential that expires does so on the way.
    for (let passed = STEP; validMs !== undefined && passed < validMs; passed += STEP) await step();
    assert.equal(ended.size, 0);
    let passed = 0;
    for (; passed < PROMISE && ended.size < ends.length; passed += STEP) await step();
    assert.deepEqual([...ended.keys()].sort(), [...ends], `after ${passed / 1000} s`);
    for (const reason of ended.values()) assert.match(reason.message, why);
    for (let more = 0; more < PROMISE; more += STEP) await step();
    assert.equal(ended.size, ends.length, 'what stands on a valid credential is not disturbed');
  });
}
