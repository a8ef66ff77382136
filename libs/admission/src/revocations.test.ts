import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { CertificateAuthority } from '@isthmus/certificates';
import { readRevocationLists } from '@isthmus/runtime';
import { costsItsLength } from '@isthmus/runtime/testing';
import { NotAuthorised } from '@isthmus/tunnel';
import { Grants } from './grants.ts';
import { identifyBy } from './identify.ts';
import { Tenants } from './tenants.ts';
import { DAY, shownBy, sourceOf } from './testing.ts';

const ACME = 'tenant: acme\nagents:\n  - {certificates: {ca: ca, crl: crl}}';

const root = await CertificateAuthority.create('kubernetes', DAY);

async function acme(crl: string, ca = root.cert, tenants = new Tenants()) {
  tenants.update(new Map([['acme.yaml', await sourceOf(ACME, { ca, crl })]]));
  return tenants;
}

function agentsOf(tenants: Tenants) {
  const grants = new Grants({ tenant: (name) => tenants.get(name) });
  const authority = identifyBy({ tenants, grants, bundles: () => undefined });
  const agent = (certificate: Awaited<ReturnType<typeof shownBy>>) =>
    authority.agent({ certificate, source: '', signal: AbortSignal.timeout(60_000) });
  return { grants, agent };
}

test('what a list revokes is refused, and what stood on it ends', async () => {
  const [good, bad] = [await shownBy(root, 'good'), await shownBy(root, 'bad')];
  const tenants = await acme(await root.revoke([], DAY));
  assert.deepEqual(tenants.problems, []);
  const { grants, agent } = agentsOf(tenants);
  const ended: NotAuthorised[] = [];
  for (const each of [good, bad]) (await agent(each)).watch((reason) => void ended.push(reason));
  await acme(await root.revoke([new X509Certificate(bad.leaf.raw).toString()], DAY), root.cert, tenants);
  grants.review(['acme']);
  await assert.rejects(agent(bad), (error: Error) => {
    assert.ok(error instanceof NotAuthorised);
    assert.match(error.message, /the certificate with serial [0-9A-F]+ is revoked/);
    return error.rule === 'acme.yaml: agents[0].certificates.crl';
  });
  await agent(good);
  for (let ticks = 1000; ended.length === 0 && ticks > 0; ticks--) await tick();
  assert.deepEqual(
    ended.map(({ principal, rule }) => [principal?.name, rule]),
    [['bad', 'acme.yaml: agents[0].certificates.crl']],
  );
});

test('an authority that is revoked takes with it what it issued', async () => {
  const middle = await root.subordinate('middle', DAY);
  const { agent } = agentsOf(await acme(await root.revoke([middle.cert], DAY)));
  await assert.rejects(agent(await shownBy(middle, 'a', { sent: [middle] })), /is revoked/);
});

test('lists of several authorities, in PEM and in DER', async () => {
  const middle = await root.subordinate('middle', DAY);
  const bad = await shownBy(middle, 'bad', { sent: [middle] });
  const lists = `${await root.revoke([], DAY)}\n${await middle.revoke([new X509Certificate(bad.leaf.raw).toString()], DAY)}`;
  const { agent } = agentsOf(await acme(lists, `${root.cert}\n${middle.cert}`));
  await assert.rejects(agent(bad), /is revoked/);
  const pem = await root.revoke([new X509Certificate(bad.leaf.raw).toString()], DAY);
  const der = Buffer.from(pem.replaceAll(/-----.*-----|\s/g, ''), 'base64');
  assert.deepEqual([...(readRevocationLists(der)[0]?.serials ?? [])], [bad.leaf.serial.replace(/^0+/, '')]);
});

test('a list of somebody else, of another key or of nothing is a problem, and changes nothing', async () => {
  const tenants = await acme(await root.revoke([], DAY));
  const signed = /^crl: no authority in ca signed its revocation list/;
  const whole = await root.revoke([root.cert], DAY);
  const half = Buffer.from(whole.replaceAll(/-----.*-----|\s/g, ''), 'base64').subarray(0, 150);
  for (const [crl, problem] of [
    [await (await CertificateAuthority.create('kubernetes', DAY)).revoke([], DAY), signed],
    [await (await CertificateAuthority.create('other', DAY)).revoke([], DAY), signed],
    [root.cert, /there is no certificate revocation list/],
    [half.toString('latin1'), /its revocation list/],
  ] as const) {
    await acme(crl, root.cert, tenants);
    const [found] = tenants.problems[0]?.problems ?? [];
    assert.match(found?.message ?? '', problem);
    assert.equal(found?.at, 'agents[0].certificates.crl');
    assert.equal(found?.line, 3);
    assert.equal(tenants.size, 1);
  }
});

test('a list whose next update is overdue stays in use, and is named', async () => {
  const bad = await shownBy(root, 'bad');
  const tenants = await acme(await root.revoke([new X509Certificate(bad.leaf.raw).toString()], -60_000));
  assert.match(
    tenants.problems[0]?.problems[0]?.message ?? '',
    /its next update was due at 20.*: replace it; it stays in use/,
  );
  await assert.rejects(agentsOf(tenants).agent(bad), /is revoked/);
});

test('a list of many costs what its length costs', async () => {
  const pem = await root.revoke([], DAY);
  const der = Buffer.from(pem.replaceAll(/-----.*-----|\s/g, ''), 'base64');
  assert.equal(readRevocationLists(der)[0]?.serials.size, 0);
  const entry = Buffer.from('301e020d00ffffffffffffffffffffffff170d3236313132333030303030305a', 'hex');
  const many = Buffer.concat(
    Array.from({ length: 100_000 }, (_, index) => {
      const one = Buffer.from(entry);
      one.writeUInt32BE(index, 8);
      return one;
    }),
  );
  const sequence = (content: Buffer) => {
    const length = Buffer.from(content.length.toString(16).padStart(6, '0'), 'hex');
    const head = content.length < 0x80 ? [0x30, content.length] : [0x30, 0x83, ...length];
    return Buffer.concat([Buffer.from(head), content]);
  };
  const ecdsa = Buffer.from('300a06082a8648ce3d040302', 'hex');
  const time = Buffer.from('170d3236313132333030303030305a', 'hex');
  const tbs = sequence(Buffer.concat([ecdsa, sequence(Buffer.alloc(0)), time, time, sequence(many)]));
  const whole = sequence(Buffer.concat([tbs, ecdsa, Buffer.from('0302000f', 'hex')]));
  const [list] = costsItsLength(() => readRevocationLists(whole));
  assert.equal(list?.serials.size, 100_000);
  assert.equal(list?.nextUpdate, Date.UTC(2026, 10, 23));
});
