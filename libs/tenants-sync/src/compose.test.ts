import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { newPassword } from '@isthmus/admission';
import { parse } from 'yaml';
import { type Composed, compose, type Stores } from './compose.ts';
import type { Source } from './kinds.ts';
import type { Values } from './values.ts';

function source(fields: Source['fields'], more: Partial<Source> = {}): Source {
  return { kind: 'Tenant', namespace: 'acme', name: 'prod', created: 0, generation: 1, atOnce: false, fields, ...more };
}

function stores(secrets: Readonly<Record<string, Readonly<Record<string, string>>>>, allows: string[] = []): Stores {
  const values = (name: string): Values | undefined =>
    secrets[name] && { values: new Map(Object.entries(secrets[name])), allows };
  return (store, name) => (store === 'config map' ? undefined : values(name));
}

function composed(fields: Source['fields'], from: Stores = stores({})): Composed {
  const { result } = compose([source(fields)], from);
  if ('faults' in result) throw new Error(result.faults.map(({ at, message }) => `${at}: ${message}`).join('\n'));
  return result;
}

const secretRef = (name: string, key = 'k', namespace?: string) => ({
  secretRef: { name, key, ...(namespace && { namespace }) },
});

describe('a tenant is composed of an object and what it names', () => {
  it('with the names of files in place of references, in a folder that their content names', () => {
    const fields = { agents: [{ certificates: { ca: secretRef('ca') } }] };
    const [one, same, other] = ['x', 'x', 'y'].map((k) => composed(fields, stores({ 'acme/ca': { k } })));
    const { tenant, agents } = parse(one?.text ?? '');
    assert.equal(tenant, 'acme-prod');
    assert.equal(agents[0].certificates.ca, `${one?.folder}/agents-0-certificates-ca`);
    assert.deepEqual([...(one?.files ?? [])], [['agents-0-certificates-ca', 'x']]);
    assert.equal(one?.text, same?.text);
    assert.notEqual(one?.folder, other?.folder);
  });

  it('whose places cannot leave their folder', () => {
    const { files } = composed({ '../../x': secretRef('ca') }, stores({ 'acme/ca': { k: 'x' } }));
    assert.deepEqual([...files.keys()], ['-x']);
  });

  it('that says what it depends on though it is not there', () => {
    const { names, result } = compose(
      [source({ server: { key: secretRef('a'), certificate: secretRef('b', 'k', 'other') } })],
      stores({}),
    );
    assert.deepEqual([...names], ['acme/a', 'other/b']);
    assert.ok('faults' in result && result.faults.length === 2);
  });

  it('unless what it names is of another namespace that does not allow it', () => {
    const named = { x: secretRef('s', 'k', 'other') };
    const at = (allows: string[]) => () => composed(named, stores({ 'other/s': { k: 'x' } }, allows));
    assert.throws(at([]), /of another namespace, and does not allow tenants of acme/);
    assert.throws(at(['acm']), /does not allow/);
    for (const allowed of ['acme', '*']) at([allowed])();
  });

  it('that says what is not kept of what it names', () => {
    const from: Stores = () => ({ values: new Map(), allows: [], unkept: 'too much' });
    for (const [namespace, fault] of [
      ['acme', /has no key "k"; not all of it is kept: too much/],
      ['other', /does not allow tenants of acme; not all of it is kept: too much/],
    ] as const)
      assert.throws(() => composed({ x: secretRef('s', 'k', namespace) }, from), fault);
  });

  it('and a later object overrides fields of an earlier one', () => {
    const cluster = source({ agents: ['of the cluster'], callers: ['of the cluster'] }, { kind: 'Cluster' });
    const { result } = compose([cluster, source({ callers: ['of the tenant'], tenant: 'named' })], stores({}));
    const file = parse((result as Composed).text);
    assert.deepEqual([file.tenant, file.agents, file.callers], ['named', ['of the cluster'], ['of the tenant']]);
    assert.deepEqual(file.source, { kind: 'Cluster', namespace: 'acme', name: 'prod' });
  });

  it('that takes the token of its ClusterProfile as soon as there is one', () => {
    const fields = {
      clusterProfile: true,
      server: { serverNames: ['*.plane.example', 'prod.plane.example'] },
      callers: [{ certificates: { ca: secretRef('ca') } }],
    };
    const { token, sha256 } = newPassword();
    const without = composed(fields, stores({ 'acme/ca': { k: 'CA' } }));
    assert.equal(parse(without.text).callers.length, 1);
    assert.deepEqual(without.profile, {
      ...{ secret: 'prod-plane-access', token: undefined, ca: 'CA', serverName: 'prod.plane.example' },
    });
    const secrets = { 'acme/ca': { k: 'CA' }, 'acme/prod-plane-access': { token } };
    const { text, profile } = composed(fields, stores(secrets));
    assert.deepEqual(parse(text).callers[1], { passwords: [{ name: 'cluster-profile', sha256 }] });
    assert.equal(profile?.token, token);
    assert.ok(!text.includes(token));
    // What its owner puts there must have been made as ours are.
    const guessed = composed(fields, stores({ ...secrets, 'acme/prod-plane-access': { token: 'secret' } }));
    assert.equal(parse(guessed.text).callers.length, 1);
    assert.equal(composed({ ...fields, clusterProfile: false }, stores(secrets)).profile, undefined);
  });

  it('unless the token of its ClusterProfile is not kept', () => {
    const full = { values: new Map(), allows: [], unkept: 'acme has too much' };
    const { result } = compose([source({ clusterProfile: true })], (_store, name) =>
      name === 'acme/prod-plane-access' ? full : undefined,
    );
    assert.match('faults' in result ? `${result.faults[0]?.message}` : '', /no key "token".*acme has too much$/);
  });

  it('with a kubeconfig only if that names no file and runs no program', () => {
    const kubeconfig =
      (user: string, cluster = 'server: https://a') =>
      () =>
        composed(
          { agents: [{ tokenReview: { kubeconfig: secretRef('c') } }] },
          stores({
            'acme/c': { k: `clusters: [{name: a, cluster: {${cluster}}}]\nusers: [{name: a, user: {${user}}}]` },
          }),
        );
    kubeconfig('token: x')();
    kubeconfig('client-certificate-data: x, client-key-data: x')();
    for (const user of ['tokenFile: /x', 'client-key: /x', 'exec: {}', 'client-certificate: /x', 'auth-provider: {}'])
      assert.throws(kubeconfig(user), /is not supported here/);
    assert.throws(kubeconfig('token: x', 'server: https://a, certificate-authority: /x'), /certificate-authority of/);
  });

  it('unless its name is too long for a tenant, or for a file', () => {
    const long = compose([source({}, { name: 'x'.repeat(70) })], stores({})).result;
    assert.match(
      'faults' in long ? (long.faults[0]?.message ?? '') : '',
      /more than 63 characters: name it in spec.tenant/,
    );
    const file = compose([source({ tenant: 'short' }, { name: 'x'.repeat(250) })], stores({})).result;
    assert.match('faults' in file ? (file.faults[0]?.message ?? '') : '', /more than 220 characters together/);
    const evil = compose([source({}, { name: '../x' })], stores({})).result;
    assert.ok('faults' in evil);
  });
});
