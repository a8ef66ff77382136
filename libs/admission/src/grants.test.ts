import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import type { NotAuthorised, Principal } from '@isthmus/tunnel';
import type { Claim } from './claims.ts';
import { type Grant, Grants, type Validity } from './grants.ts';
import { type TenantSource, Tenants } from './tenants.ts';
import { sourceOf } from './testing.ts';

const HOUR = 3_600_000;

/** Tenants whose files can be replaced, with what was granted to them. */
async function granting(texts: Readonly<Record<string, string>>) {
  const tenants = new Tenants();
  const sources = new Map<string, TenantSource>();
  let now = Date.UTC(2026, 10, 23);
  const grants = new Grants({ tenant: (name) => tenants.get(name), now: () => now });
  const put = async (changes: Readonly<Record<string, string | undefined>>) => {
    for (const [path, text] of Object.entries(changes)) {
      if (text === undefined) sources.delete(path);
      else sources.set(path, await sourceOf(text));
    }
    const { changed, gone } = tenants.update(sources);
    grants.review([...changed, ...gone]);
  };
  await put(texts);
  const ended: string[] = [];
  const rules: (string | undefined)[] = [];
  const grant = (name: string, validity: Partial<Validity> = {}, tenant = 'acme'): Grant => {
    const principal: Principal = { tenant, role: 'agent', name, rule: `${tenant}.yaml: agents[0]` };
    const found = tenants.get(tenant);
    assert.ok(found);
    return grants.grant(principal, found, { expires: now + HOUR, fault: () => undefined, ...validity });
  };
  const watch = (each: Grant, claim?: Claim) =>
    each.watch((reason: NotAuthorised) => {
      ended.push(reason.message);
      rules.push(reason.rule);
      assert.equal(reason.principal, each.principal);
    }, claim);
  const pass = (ms: number) => {
    now += ms;
  };
  return { tenants, grants, grant, watch, put, pass, ended, rules, now: () => now };
}

/** Lets a review end. */
async function reviewed(ticks = 10): Promise<void> {
  for (let left = ticks; left > 0; left--) await tick();
}

test('what was denied ends with the file and rule that say so, and nothing else does', async () => {
  const { grant, watch, put, ended, rules } = await granting({ 'acme.yaml': 'tenant: acme', 'b.yaml': 'tenant: b' });
  watch(grant('e1'));
  watch(grant('e2', { serials: ['0A', 'FF01'] }));
  watch(grant('e3'));
  watch(grant('e1', {}, 'b'));
  await put({ 'acme.yaml': "tenant: acme\ndeny: {agents: [x, e1], serials: ['00:ff:01']}" });
  await reviewed();
  assert.deepEqual(rules, ['acme.yaml: deny.agents[1]', 'acme.yaml: deny.serials[0]']);
  assert.match(ended[0] ?? '', /^agent e1 of tenant acme is not authorised: it is on the list/);
  assert.throws(() => grant('e1'), /agent e1 of tenant acme is not authorised/);
});

test('what stood on a removed tenant ends, and a tenant that only changed keeps its grants', async () => {
  const { grant, watch, put, ended } = await granting({ 'acme.yaml': 'tenant: acme', 'b.yaml': 'tenant: b' });
  const kept = grant('e1', {}, 'b');
  watch(kept);
  watch(grant('e1'));
  await put({ 'acme.yaml': undefined, 'b.yaml': 'tenant: b\nlimits: {tunnels: 3}' });
  await reviewed();
  assert.deepEqual(ended, ['agent e1 of tenant acme is not authorised: its tenant was removed (acme.yaml)']);
  assert.equal(kept.tenant.limits.tunnels, 3);
});

test('what is no longer watched does not end, also if its review was due', async () => {
  const { grant, put, grants, ended } = await granting({ 'acme.yaml': 'tenant: acme' });
  const [first, second] = [grant('e1'), grant('e2')];
  await put({ 'acme.yaml': 'tenant: acme\ndeny: {agents: [e1, e2]}' });
  first.watch(({ message }) => {
    ended.push(message);
    stop();
  });
  const stop = second.watch(({ message }) => void ended.push(message));
  await reviewed();
  assert.equal(ended.length, 1);
  assert.match(ended[0] ?? '', /^agent e1 /);
  assert.equal(grants.size, 0);
});

test('a change between a grant and its watching is not missed', async () => {
  const { grant, watch, put, ended } = await granting({ 'acme.yaml': 'tenant: acme' });
  const late = grant('e1');
  await put({ 'acme.yaml': 'tenant: acme\ndeny: {agents: [e1]}' });
  await reviewed();
  watch(late);
  await reviewed();
  assert.equal(ended.length, 1);
});

test('a key or an authority that goes between a grant and its watching is not missed', async () => {
  const { grants, grant, watch, ended } = await granting({ 'acme.yaml': 'tenant: acme' });
  let stands = true;
  let asked = 0;
  const fault = () => {
    asked++;
    return stands ? undefined : { why: 'its key was removed', rule: 'acme.yaml: agents[0].tokens' };
  };
  const late = grant('e1', { fault });
  // No file has changed: a URL served other keys, or a bundle of the flags was replaced.
  stands = false;
  grants.review(['acme']);
  await reviewed();
  watch(late);
  assert.deepEqual(ended, [], 'who watches is not called before it has what stops it');
  await reviewed();
  assert.match(ended.join(), /^agent e1 of tenant acme is not authorised: its key was removed/);
  stands = true;
  watch(grant('e2', { fault }));
  const before = asked;
  watch(grant('e3', { fault }));
  await reviewed();
  assert.deepEqual([ended.length, asked - before], [1, 1], 'who is watched at once costs no review, nor do others');
});

test('a change between a grant and its watching does not wait for the review of others, and costs them none', async () => {
  const { grants, grant, watch, put, ended } = await granting({ 'acme.yaml': 'tenant: acme' });
  let reviews = 0;
  const validity = {
    fault() {
      reviews++;
      return undefined;
    },
  };
  const late = grant('e1');
  for (let index = 0; index < 20_000; index++) grant(`o${index}`, validity).watch(() => {});
  await put({ 'acme.yaml': 'tenant: acme\ndeny: {agents: [e1]}' });
  await reviewed(10_000);
  reviews = 0;
  watch(late);
  await reviewed(1);
  assert.deepEqual([ended.length, reviews], [1, 0]);
  grants.close();
});

test('a grant ends when its agent claims more than its tenant allows now', async () => {
  const { grant, watch, put, ended, rules } = await granting({ 'acme.yaml': 'tenant: acme' });
  const identifiers = { host: [], ipv4: [], ipv6: [], cidr: [], defaultRoute: true };
  watch(grant('e1'), { agentId: 'e1', identifiers });
  watch(grant('e2'));
  await put({ 'acme.yaml': 'tenant: acme\nclaims: {agentId: prefixed}' });
  await reviewed();
  assert.deepEqual(ended, []);
  await put({ 'acme.yaml': 'tenant: acme\nclaims: {defaultRoute: false}' });
  await reviewed();
  assert.deepEqual(rules, ['acme.yaml: claims.defaultRoute']);
});

test('a watcher that stopped hears nothing', async () => {
  const { grants, grant, watch, put, ended } = await granting({ 'acme.yaml': 'tenant: acme' });
  const stop = watch(grant('e1'));
  stop();
  stop();
  assert.equal(grants.size, 0);
  await put({ 'acme.yaml': undefined });
  await reviewed();
  assert.deepEqual(ended, []);
});

test('a credential ends when it expires, or its grace after that', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval'] });
  context.after(() => context.mock.timers.reset());
  const { grant, watch, put, pass, ended } = await granting({
    'acme.yaml': 'tenant: acme',
    'slow.yaml': 'tenant: slow\nexpiryGraceSeconds: 60',
  });
  watch(grant('short', { expires: Date.UTC(2026, 10, 23) + 5000 }));
  watch(grant('long'));
  watch(grant('graced', { expires: Date.UTC(2026, 10, 23) + 5000 }, 'slow'));
  const later = async (ms: number) => {
    pass(ms);
    context.mock.timers.tick(4000);
    await reviewed();
  };
  await later(4000);
  assert.deepEqual(ended, []);
  await later(4000);
  assert.deepEqual(ended, [
    'agent short of tenant acme is not authorised: its credential expired at 2026-11-23T00:00:05.000Z (acme.yaml: agents[0])',
  ]);
  await later(60_000);
  assert.match(
    ended[1] ?? '',
    /^agent graced of tenant slow is not authorised: its credential expired at 2026-11-23T00:00:05/,
  );
  assert.throws(() => grant('x', { expires: 0 }, 'slow'), /its credential expired at 1970/);
  // The clock is set forward by an hour.
  await later(HOUR);
  assert.equal(ended.length, 3);
  await put({});
});

test('a review of 100,000 grants lets other work take its turn', async () => {
  const { grants, grant, put } = await granting({ 'acme.yaml': 'tenant: acme' });
  let reviews = 0;
  const validity = {
    fault() {
      reviews++;
      return undefined;
    },
  };
  const all = 100_000;
  for (let index = 0; index < all; index++) grant(`e${index}`, validity).watch(() => {});
  reviews = 0;
  await put({ 'acme.yaml': 'tenant: acme\nlimits: {tunnels: 3}' });
  let ticks = 0;
  let most = 0;
  for (let before = 0; reviews < all; before = reviews) {
    await tick();
    most = Math.max(most, reviews - before);
    ticks++;
    assert.ok(ticks < 1_000_000);
  }
  assert.ok(ticks > 2, `${ticks} ticks`);
  assert.equal(reviews, all);
  assert.equal(grants.size, all);
  grants.close();
});
