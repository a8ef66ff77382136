import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NotAuthorised, principalText } from '@isthmus/tunnel';
import { Grants } from './grants.ts';
import { identifyBy } from './identify.ts';
import { newPassword, passwordId, readCallerTokens } from './passwords.ts';
import { readTenantFile } from './tenant-file.ts';
import { Tenants } from './tenants.ts';

const { signal } = new AbortController();

/** Tenants by the text of `callers` in their files. */
function tenantsWith(callers: Readonly<Record<string, string>>) {
  const tenants = new Tenants();
  const write = (files: Readonly<Record<string, string>>) => {
    const sources = Object.entries(files).map(
      ([name, text]) =>
        [
          `${name}.yaml`,
          { read: readTenantFile(`tenant: ${name}\ncallers: ${text}`), credentials: new Map() },
        ] as const,
    );
    return tenants.update(new Map(sources));
  };
  write(callers);
  const grants = new Grants({ tenant: (name) => tenants.get(name) });
  const identify = identifyBy({ tenants, grants, bundles: () => undefined });
  const who = async (token: string, claimedTenant?: string) => {
    const shown = { token, source: '10.0.0.1', signal, ...(claimedTenant !== undefined && { claimedTenant }) };
    return identify.callerToken(shown).then(
      ({ principal }) => `${principalText(principal)} by ${principal.rule}`,
      (error: NotAuthorised) => error.message,
    );
  };
  return { tenants, grants, identify, write, who };
}

const [ci, other, stranger] = [newPassword(), newPassword(), newPassword()];
const entry = (name: string, { sha256 }: { readonly sha256: string }) =>
  `[{passwords: [{name: ${name}, sha256: "${sha256}"}]}]`;

test('a token finds its tenant by itself, or is checked against the one that is claimed', async () => {
  const { who } = tenantsWith({
    acme: entry('ci', ci),
    beta: entry('ci', other),
    none: '[{unixSocket: /run/none.sock}]',
  });
  assert.equal(await who(ci.token), 'acme/caller/ci by acme.yaml: callers[0].passwords[0]');
  assert.equal(await who(other.token, 'beta'), 'beta/caller/ci by beta.yaml: callers[0].passwords[0]');
  assert.match(await who(other.token, 'acme'), /not one of tenant acme/);
  assert.match(await who(stranger.token), /it is not a token of any tenant$/);
  assert.match(await who(`${ci.token.slice(0, -8)}AAAAAAAA`), /it is not a token of any tenant$/);
  assert.match(await who(ci.sha256, 'acme'), /it is not a token of this tenant$/);
  assert.match(await who(ci.token, 'nobody'), /there is no tenant nobody/);
  assert.match(await who(stranger.token, 'none'), /takes no tokens of callers/);
});

test('what costs nothing is verified at once, and the rest at its turn', async () => {
  const { tenants, grants } = tenantsWith({ acme: entry('ci', ci) });
  const judge = async () => assert.fail('it is not its turn');
  const identify = identifyBy({ tenants, grants, tokens: { caller: { judge } }, bundles: () => undefined });
  const waitToVerify = () => Promise.reject(new Error('later'));
  const show = (token: string) => identify.callerToken({ token, source: '10.0.0.1', signal, waitToVerify });
  assert.equal((await show(ci.token)).principal.name, 'ci');
  await assert.rejects(show(stranger.token), /it is not a token of any tenant/);
  for (const copied of [ci.token.slice(0, -1), `${ci.token}"`])
    await assert.rejects(show(copied), /not as isthmus tenants token printed it: copy it whole/);
  await assert.rejects(show('an.issuers.token'), /later/);
});

test('a token that its file no longer has does not stand, nor does one of another hash', async () => {
  const { grants, tenants, identify, write } = tenantsWith({ acme: entry('ci', ci) });
  const grant = await identify.callerToken({ token: ci.token, source: '', signal });
  const ended = new Promise<NotAuthorised>((resolve) => grant.watch(resolve));
  const { changed } = write({ acme: entry('ci', { sha256: `${passwordId(ci.token)}:${stranger.sha256.slice(17)}` }) });
  grants.review(changed);
  assert.match((await ended).message, /its token was removed/);
  await assert.rejects(identify.callerToken({ token: ci.token, source: '', signal }), NotAuthorised);
  assert.ok(tenants.get('acme'));
  grants.close();
});

test('no two files have the same token', () => {
  const { tenants } = tenantsWith({ acme: entry('ci', ci), beta: entry('ci', ci) });
  assert.match(
    tenants.problems[0]?.problems[0]?.message ?? '',
    /the token [0-9a-f]{16} is in acme\.yaml too: make another/,
  );
});

test('who shows nothing is asked for a token where one would do', () => {
  const { identify } = tenantsWith({ acme: entry('ci', ci) });
  assert.throws(
    () => identify.caller({}),
    (error) => error instanceof NotAuthorised && error.challenge,
  );
  const without = tenantsWith({ none: '[{unixSocket: /run/none.sock}]' });
  assert.throws(
    () => without.identify.caller({}),
    (error) => error instanceof NotAuthorised && !error.challenge,
  );
});

test('a file of tokens alone is one of tenant default, whose callers come in by other ways too', () => {
  const line = (name: string) => `- passwords: [{name: ${name}, sha256: "${newPassword().sha256}"}]`;
  const others = [{ certificates: {} }, { unixSocket: '/run/callers.sock' }];
  const read = (source: string) => readCallerTokens(source, others);
  const named = (source: string) => {
    const found = read(source);
    assert.ok('file' in found, JSON.stringify(found));
    assert.equal(found.file.tenant, 'default');
    assert.deepEqual(found.file.callers?.slice(-2), others);
    return found.file.callers?.flatMap(({ passwords = [] }) => passwords.map(({ name }) => name));
  };
  assert.deepEqual(named(`# for jobs\n${line('ci')}\n\n${line('ops')}\n`), ['ci', 'ops']);
  for (const none of ['', '\n# none\n']) assert.deepEqual(named(none), [], 'a file without tokens removes all');

  const problems: [source: string, line: number, message: RegExp][] = [
    [`${line('ci')}\n- port: 9000`, 2, /expected only lines that isthmus tenants token prints/],
    [`${line('ci')}\n- certificates: {ca: ca.pem}`, 2, /expected only lines/],
    [`${line('ci')}\nlimits: {tunnels: 1}`, 2, /expected only lines/],
    [`${line('ci')}\ntenant: acme`, 3, /unique/],
    ['- passwords: [{name: ci, sha256: secret}]', 1, /expected what isthmus tenants token prints/],
    ['isthmus_0123', 1, /keys/],
  ];
  for (const [source, at, message] of problems) {
    const found = read(source);
    assert.ok('problems' in found, source);
    assert.equal(found.problems[0]?.line, at, JSON.stringify(found));
    assert.match(found.problems[0]?.message ?? '', message);
  }
});
