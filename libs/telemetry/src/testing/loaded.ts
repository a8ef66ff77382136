import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import process from 'node:process';

/** Returns which files of OpenTelemetry a new Node process loads when it runs `source` with `env`. */
export function loadedSdk(source: readonly string[], env: Readonly<Record<string, string>>): string[] {
  const lines = [
    "import { createRequire } from 'node:module';",
    ...source,
    "const loaded = Object.keys(createRequire(import.meta.url).cache).filter((path) => path.includes('@opentelemetry'));",
    'console.log(JSON.stringify(loaded));',
  ];
  const argv = ['--input-type=module', '--eval', lines.join('\n')];
  const { stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8', env: { ...process.env, ...env } });
  assert.notEqual(stdout, '', stderr);
  return JSON.parse(stdout);
}
