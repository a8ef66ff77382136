import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { allInOne, DEADLINE_MS, onDeno, ROOT, type Scope, scoped, tempDir } from './harness/index.ts';

/** An HTTP server as the demo has one. Returns its port. */
async function hello(scope: Scope): Promise<number> {
  const server = createServer((_, response) => response.end('Hello'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  scope.defer(() => void server.close());
  return (server.address() as { port: number }).port;
}

test(
  'the script of README.md dials over a unix socket, and says why a dial fails',
  scoped(async (scope) => {
    const [, script = ''] = /```js\n([\s\S]*?)```/.exec(readFileSync(`${ROOT}README.md`, 'utf8')) ?? [];
    assert.ok(script.trim().split('\n').length <= 10, 'ten lines');
    const file = `${await tempDir(scope)}/dial.mjs`;
    await writeFile(file, script);
    const { server } = await allInOne(scope);
    const run = (destination: string) => {
      const own = onDeno ? ['run', '-A', file] : [file];
      const args = [...own, server.connect.uds, destination];
      return promisify(execFile)(process.execPath, args, { timeout: DEADLINE_MS });
    };
    const { stdout, stderr } = await run(`127.0.0.1:${await hello(scope)}`);
    assert.match(stdout, /^HTTP\/1\.1 200 OK\r\n[\s\S]*Hello/);
    assert.match(stderr, /^HTTP\/1\.1 200 /);
    const refused = await run('127.0.0.1:1');
    assert.deepEqual([refused.stdout, /^HTTP\/1\.1 502 /.test(refused.stderr)], ['', true]);
  }),
);
