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

test("README.md's figures beside ANP are those of the pages that it names", () => {
  const page = (name: string) => readFileSync(`${ROOT}${name}`, 'utf8');
  const found = (name: string, pattern: RegExp) => {
    const match = pattern.exec(page(name));
    assert.ok(match, `${name}: ${pattern}`);
    return match.slice(1);
  };
  const reliability = 'docs/RELIABILITY.md';
  const performance = 'docs/PERFORMANCE.md';
  const [cut, allCut] = found(
    reliability,
    /^\| a hub dies \| (\d+ tunnels cut) \| .*(all of the server's tunnels are cut) \|$/m,
  );
  const [others, stop] = found(reliability, /^\| one reader stalls \| (.+) \| (.+) \|$/m);
  const ratios = (line: string, figure: string) =>
    found(performance, new RegExp(`^\\| ${line} \\| ${figure} \\| .+ \\| (.+) \\| (.+) \\|$`, 'm'));
  const [uds, mtls] = ratios('bulk ×1', 'GB/s');
  const [memory, sidecars] = found(
    'docs/KUBERNETES.md',
    /^\| 1,000 \| 2,000, (\d+ GiB) \| 43 \(.*\), ([\d.]+ GiB),/m,
  ).reverse();
  const [cost] = ratios('dials ×8', 'plane CPU ms a dial');
  const [fresh] = ratios('one dial each half second, of a fresh pair', 'p50 µs to the answer');
  const [warm] = ratios('one dial each half second, of a warm pair', 'p50 µs to the answer');
  const [started] = ratios('idle ×500', 'RSS after start, MB');
  const opening = `On a unix socket, a dial by HTTP CONNECT costs ${cost} times ANP's processor time; a single one on an idle plane takes ${fresh} times as long while the processes are new, and ${warm} times once they have made a thousand; a process has ${started} times the memory after its start.`;
  assert.ok(page(performance).replaceAll('\n', ' ').includes(opening), opening);
  const readme = page('README.md');
  for (const sentence of [
    `A hub dies: ${cut}, no byte lost. With ANP, ${allCut} `,
    `A reader stalls: ${others}. With ANP, ${stop}.`,
    `A download by HTTP CONNECT has ${uds} times ANP's bytes a second on a unix socket, ${mtls} times over mutual TLS `,
    `One plane serves 1,000 clusters in ${memory}, where a server beside each API server takes ${sidecars} `,
    `a dial takes ${cost} times ANP's processor time, and a process after its start ${started} times the memory. On an idle plane, a dial takes ${warm} times as long, and ${fresh} times while the processes are new.`,
  ]) {
    assert.ok(readme.includes(sentence), sentence);
  }
});
