import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import test from 'node:test';
import { type Flags, newTrust, Scope, scoped, startCommand } from './index.ts';
import { Secrets } from './secrets.ts';

/** Runs a program that prints this text, and returns the error with which its scope ends. */
async function ending(text: string, flags: Flags): Promise<string> {
  const scope = new Scope();
  const program = startCommand(scope, ['sh', '-c', 'printf "%s\\n" "$SAID"'], { flags, env: { SAID: text } });
  await program.exit;
  return scope[Symbol.asyncDispose]().then(
    () => '',
    (error: AggregateError) => String(error.errors[0]),
  );
}

test(
  'a program that prints a secret from its flags fails its test, on any line',
  scoped(async (scope) => {
    const { agents, dir } = await newTrust(scope);
    const { cert, key } = await agents.client('agent');
    const [token, kubeconfig] = [`${dir}/token`, `${dir}/kubeconfig`];
    writeFileSync(token, 'a-token-of-some-length\n');
    writeFileSync(kubeconfig, 'apiVersion: v1\nusers:\n- user:\n    token: another-token\n');
    const flags: Flags = {
      'agent-cert': cert,
      'agent-key': key,
      'service-account-token-path': token,
      kubeconfig,
      'redis-url': 'redis+sentinel://plane:p%40ssword@127.0.0.1:1/main?sentinel-password=secret-two',
    };
    const keyLines = readFileSync(key, 'utf8').trim().split('\n');
    assert.ok(keyLines.length > 3);
    const secrets = [
      ...keyLines.slice(1, -1),
      ...['-----BEGIN PRIVATE KEY-----', 'Bearer something', 'a-token-of-some-length', 'another-token'],
      ...['p%40ssword', 'p@ssword', 'secret-two'],
    ];
    for (const secret of secrets) {
      const line = JSON.stringify({ msg: 'oops', text: `got ${secret}` });
      assert.match(await ending(`fine\n${line}\nfine`, flags), /sh printed a secret: \{"msg":"oops"/, secret);
    }
    const harmless = [
      readFileSync(cert, 'utf8'),
      key,
      token,
      'Bearer [redacted]',
      'redis://plane:[redacted]@127.0.0.1:1',
    ];
    assert.equal(await ending(harmless.join('\n'), flags), '');
  }),
);

test(
  'a key that is replaced while a program runs is a secret too',
  scoped(async (scope) => {
    const { agents } = await newTrust(scope);
    const [first, second] = [await agents.client('agent'), await agents.client('agent')];
    const secrets = new Secrets({ 'agent-key': first.key });
    const line = (path: string) => readFileSync(path, 'utf8').split('\n')[1] ?? '';
    const lines = [line(first.key), line(second.key)] as const;
    // All keys of a kind begin alike and differ only after that.
    const tails = [first.key, second.key].map((path) => readFileSync(path, 'utf8').trim().split('\n').at(-2) ?? '');
    assert.notEqual(lines[0], lines[1]);
    assert.deepEqual(
      tails.map((tail) => secrets.in(tail)),
      [true, false],
    );
    writeFileSync(first.key, readFileSync(second.key));
    secrets.look();
    assert.deepEqual(
      tails.map((tail) => secrets.in(tail)),
      [true, true],
    );
  }),
);
