import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { type Scope, scoped, tempDir } from '../harness/index.ts';
import { networksMissing } from './network.ts';

const SETTING = 'net.ipv4.tcp_rmem=4096 131072 524288';

/** Runs a program that does something in a network of its own, or here if there can be none. */
async function runApart(scope: Scope, does: string, path = process.env.PATH) {
  const file = `${await tempDir(scope)}/main.mjs`;
  const network = JSON.stringify(new URL('network.ts', import.meta.url).href);
  const settings = JSON.stringify([SETTING]);
  writeFileSync(
    file,
    `import { apart } from ${network};\nif (!(await apart(import.meta.url, ${settings}))) { ${does} }\n`,
  );
  const { status, stdout, stderr } = spawnSync(process.execPath, [file], {
    env: { ...process.env, PATH: path },
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

/** A directory for PATH with some programs of this machine. */
async function pathOf(scope: Scope, ...programs: string[]): Promise<string> {
  const path = `${await tempDir(scope)}/bin`;
  mkdirSync(path);
  for (const program of programs) {
    const { stdout } = spawnSync('sh', ['-c', 'command -v "$0"', program], { encoding: 'utf8' });
    symlinkSync(stdout.trim(), `${path}/${program}`);
  }
  return path;
}

for (const [does, status] of [
  ['process.exitCode = 3', 3],
  ["process.kill(process.pid, 'SIGKILL')", 1],
] as const)
  test(
    `a program whose run in a network of its own does ${does} ends with ${status}`,
    { skip: networksMissing() },
    scoped(async (scope) => assert.equal((await runApart(scope, does)).status, status)),
  );

test(
  'without a program that makes networks, it says which is missing, and runs in that of the machine',
  { skip: networksMissing() },
  scoped(async (scope) => {
    const { href } = new URL('network.ts', import.meta.url);
    const does = `const { networksMissing } = await import('${href}'); console.log(networksMissing())`;
    const missing = async (...programs: string[]) =>
      (await runApart(scope, does, await pathOf(scope, ...programs))).stdout;
    assert.match(await missing('sh', 'ip', 'sysctl'), /^network namespaces need .*unshare/);
    assert.match(await missing('sh', 'unshare', 'sysctl'), /^network namespaces need .*\bip\b/);
    assert.equal(await missing('sh', 'unshare', 'ip'), 'false\n');
  }),
);
