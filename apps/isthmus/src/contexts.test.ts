import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { EXIT } from './output.ts';
import { run } from './program.ts';
import { TestTerminal } from './testing/test-terminal.ts';

describe('contexts', () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-contexts-'));
  const path = join(dir, 'home', 'config');
  after(() => rmSync(dir, { recursive: true }));

  async function isthmus(line: string, env: Record<string, string> = {}) {
    const { HOME, ...more } = env;
    const terminal = new TestTerminal(line.split(' '), { env: HOME ? { HOME } : { ISTHMUSCONFIG: path } });
    // commander reads the environment of the process, before anything waits.
    Object.assign(process.env, more);
    const running = run(terminal);
    for (const name of Object.keys(more)) delete process.env[name];
    return { status: await running, out: terminal.stdout, err: terminal.stderr };
  }
  /** Nobody listens at port 1, so the error says who was asked. */
  async function asked(line: string, env?: Record<string, string>): Promise<string> {
    const { status, err } = await isthmus(line, env);
    assert.ok(status === EXIT.unasked || status === EXIT.usage, err);
    return [...err.matchAll(/127\.\d\.\d\.\d:1(?=: )|--ca: cannot read [^:]+/g)].join(' ');
  }

  it('are kept as kubectl keeps them, for the owner alone, with files by name only', async () => {
    assert.match((await isthmus('config current-context')).err, /has no current context: isthmus config use-context/);
    const made = await isthmus('config set-context one --address 127.0.0.2:1 --ca /nowhere/ca.pem');
    assert.deepEqual([made.status, made.out], [EXIT.good, 'Context "one" created.\n']);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal((await isthmus('config current-context')).out, 'one\n', 'the first one is current');
    writeFileSync(path, `# mine\n${readFileSync(path, 'utf8')}`);
    await isthmus('config set-context two --address 127.0.0.3:1,127.0.0.4:1 --tenant acme');
    assert.equal((await isthmus('config set-context one --ca=')).out, 'Context "one" modified.\n');
    assert.equal((await isthmus('config use-context two')).out, 'Switched to context "two".\n');
    const shown = (line: string) => isthmus(line).then(({ out, err }) => out + err);
    assert.equal(await shown('config set-context a\u001b --address 127.0.0.5:1'), 'Context "a\\u{1b}" created.\n');
    assert.equal(await shown('config delete-context a\u001b'), 'Context "a\\u{1b}" deleted.\n');
    assert.equal(
      (await isthmus('config get-contexts')).out,
      'CURRENT   NAME   ADDRESS                   CA   CERT   TENANT\n          one    127.0.0.2:1               -    -      -\n*         two    127.0.0.3:1,127.0.0.4:1   -    -      acme\n',
    );
    const { out } = await isthmus('config get-contexts two -o json');
    assert.deepEqual(JSON.parse(out).contexts, [
      { name: 'two', current: true, address: ['127.0.0.3:1', '127.0.0.4:1'], tenant: 'acme' },
    ]);
    assert.match(readFileSync(path, 'utf8'), /^# mine\n/);
    assert.equal((await isthmus('config delete-context one')).out, 'Context "one" deleted.\n');
    const gone = await isthmus('config delete-context two');
    assert.deepEqual([gone.status, gone.out], [EXIT.good, 'Context "two" deleted.\n']);
    assert.match(gone.err, /"two" was the current context: isthmus config use-context NAME/);
    assert.match((await isthmus('status')).err, /has no context "two"/, 'no command asks another plane unasked');
    assert.match((await isthmus('config delete-context one')).err, /has no context "one"/);
    assert.match(readFileSync(path, 'utf8'), /^# mine\n/);
  });

  it('give what the command line does not, and count before the environment only by --context', async () => {
    writeFileSync(
      path,
      'current-context: two\ncontexts:\n  - {name: one, context: {address: 127.0.0.2:1}}\n  - {name: two, context: {address: 127.0.0.3:1, ca: ca.pem}}\n',
    );
    const ca = `--ca: cannot read ${join(dir, 'home', 'ca.pem')}`;
    assert.equal(await asked('status'), ca);
    assert.equal(await asked('status --ca /other'), '--ca: cannot read /other');
    assert.equal(await asked('status', { ISTHMUS_CA: '/other' }), '--ca: cannot read /other');
    assert.equal(await asked('status --address 127.0.0.9:1'), '127.0.0.9:1', 'another plane has other certificates');
    const env = { ISTHMUS_ADDRESS: '127.0.0.8:1', ISTHMUS_CA: '/other' };
    assert.equal(await asked('status', { ISTHMUS_ADDRESS: '127.0.0.8:1' }), '127.0.0.8:1');
    assert.equal(await asked('status --context one', env), '127.0.0.2:1');
    assert.equal(await asked('status --context two', env), ca);
    assert.equal(await asked('status --context one --address 127.0.0.9:1'), '127.0.0.9:1');
    mkdirSync(join(dir, 'user', '.isthmus'), { recursive: true });
    copyFileSync(path, join(dir, 'user', '.isthmus', 'config'));
    assert.equal(await asked('status --ca /other', { HOME: join(dir, 'user') }), '--ca: cannot read /other');
    const homeless = await isthmus('version --client', { HOME: '/dev/null' });
    assert.equal(homeless.status, EXIT.good, homeless.err);
  });

  it('that cannot be used are named, and only where one is asked for', async () => {
    const cases: readonly [context: string, says: RegExp][] = [
      ['{}', /context one: it has no address: isthmus config set-context one --address HOST:PORT/],
      ['{address: nowhere}', /context one: .*want host:port/],
      ['{address: [1]}', /context one: address is no text/],
      ['{address: a:1, key-data: s3cret}', /context one: there is no "key-data": a context has address, ca/],
    ];
    for (const [context, says] of cases) {
      writeFileSync(path, `current-context: one\ncontexts: [{name: one, context: ${context}}, null]\n`);
      const { status, err } = await isthmus('status');
      assert.equal(status, EXIT.usage, context);
      assert.match(err, says);
      assert.doesNotMatch(err, /s3cret/);
    }
    assert.equal((await isthmus('version --client')).status, EXIT.good);
    assert.equal((await isthmus('tenants token acme')).status, EXIT.good);
    assert.equal((await isthmus('dial 127.0.0.1:1 --from here')).status, EXIT.wrong);
    assert.match((await isthmus('tenants check /nowhere')).err, /^isthmus: cannot read \/nowhere/);
    assert.match((await isthmus('status --context other')).err, /has no context "other"/);
    assert.match((await isthmus('config use-context other')).err, /has no context "other"/);
    assert.match((await isthmus('config use-context')).err, /name the context/);
    assert.match((await isthmus('config set-context new --tenant acme')).err, /context new: it has no address/);
    assert.doesNotMatch(readFileSync(path, 'utf8'), /new/);
    assert.match((await isthmus('why')).err, /HOME|KUBECONFIG/, 'it reads a kubeconfig');
    assert.match((await isthmus('nc a:1 --context one --gateway https://a')).err, /--context names a context/);
  });
});
