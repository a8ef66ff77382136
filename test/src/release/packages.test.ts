import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { VERSION } from '@isthmus/service';
import { onDeno, ROOT, unlessSlow } from '../harness/runtime.ts';

/** What is packed is for npm, whatever runs this. To bundle all programs takes half a minute. */
const skip = onDeno ? 'npm is of Node' : unlessSlow();
const RUN_MS = 300_000;
const REPOSITORY = 'git+https://git.example.com/isthmus.git';

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly private?: boolean;
  readonly license: string;
  readonly repository: { readonly url: string };
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const place = mkdtempSync(join(tmpdir(), 'isthmus-packages-'));
after(() => rmSync(place, { recursive: true, force: true }));
const tarballs = join(place, 'tarballs');

before(async () => {
  if (skip) return;
  for (const name of ['tarballs', 'scratch', 'unpacked']) mkdirSync(join(place, name));
  const { packAll } = await import(`${ROOT}scripts/lib/npm-packages.mjs`);
  const made: string[] = await packAll({ to: tarballs, scratch: join(place, 'scratch'), repository: REPOSITORY });
  for (const file of made) {
    const to = join(place, 'unpacked', basename(file));
    mkdirSync(to);
    await run('tar', ['xzf', file, '-C', to], place);
  }
});

/** Returns each package with the directory that its tarball holds. */
function packages(): { readonly directory: string; readonly manifest: Manifest }[] {
  const unpacked = join(place, 'unpacked');
  return readdirSync(unpacked).map((name) => {
    const directory = join(unpacked, name, 'package');
    return { directory, manifest: JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as Manifest };
  });
}

async function run(program: string, args: readonly string[], cwd: string): Promise<string> {
  // What `npm run` tells its children about this workspace is wrong elsewhere.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('npm_')));
  const { stdout } = await promisify(execFile)(program, args, { cwd, env, timeout: RUN_MS, maxBuffer: 1 << 24 });
  return stdout;
}

function emptyFolder(name: string): string {
  const folder = join(place, name);
  mkdirSync(folder);
  return folder;
}

test('the programs and the libraries that stand alone are packed, may be published, and need no other package', {
  skip,
}, () => {
  const packed = packages().map(({ manifest }) => manifest);
  assert.deepEqual(packed.map(({ name }) => name).sort(), ['@isthmus/client', '@isthmus/wire', 'isthmus']);
  for (const { name, version, private: hidden, license, repository, dependencies } of packed) {
    assert.deepEqual([version, hidden, license, dependencies], [VERSION, undefined, 'Apache-2.0', undefined], name);
    assert.equal(repository.url, REPOSITORY, name);
  }
});

test('a package holds its entry points and its licence, and nothing that only this repository needs', { skip }, () => {
  for (const { directory, manifest } of packages()) {
    const files = readdirSync(directory, { recursive: true }) as string[];
    assert.ok(files.includes('LICENSE'), manifest.name);
    const entries = [
      ...Object.values(manifest.exports ?? {}).flatMap(Object.values),
      ...Object.values(manifest.bin ?? {}),
    ];
    assert.ok(entries.length > 0, manifest.name);
    for (const file of entries) assert.ok(existsSync(join(directory, file)), `${manifest.name} has ${file}`);
    assert.deepEqual(
      files.filter((file) => /\.test\.|testing|\.map$|tsbuildinfo|^src/.test(file)),
      [],
      manifest.name,
    );
  }
});

test('the programs run from an empty folder, with nothing from a registry', { skip }, async () => {
  const folder = emptyFolder('programs');
  await run('npm', ['install', '--offline', '--no-audit', join(tarballs, `isthmus-${VERSION}.tgz`)], folder);
  assert.deepEqual(
    readdirSync(join(folder, 'node_modules')).filter((name) => !name.startsWith('.')),
    ['isthmus'],
  );
  const bin = join(folder, 'node_modules/.bin');
  const programs = ['backend-hub', 'frontend-gw', 'isthmus', 'kubectl-isthmus', 'proxy-agent', 'proxy-server'];
  assert.deepEqual(readdirSync(bin).sort(), programs);
  for (const program of readdirSync(bin)) {
    assert.equal((await run(join(bin, program), ['--version'], folder)).trim().split(' ').at(-1), VERSION, program);
  }
  // A part that is loaded on demand.
  await run(join(bin, 'isthmus'), ['certs', 'pki'], folder);
  assert.ok(existsSync(join(folder, 'pki/callers-ca.pem')));
});

test('the libraries can be imported from an empty folder, with nothing from a registry', { skip }, async () => {
  const folder = emptyFolder('libraries');
  const files = readdirSync(tarballs).filter((name) => name !== `isthmus-${VERSION}.tgz`);
  const options = ['--offline', '--no-audit', '--ignore-scripts'];
  await run('npm', ['install', ...options, ...files.map((name) => join(tarballs, name))], folder);
  const entries = packages().flatMap(({ manifest: { name, exports = {} } }) =>
    Object.keys(exports).map((path) => join(name, path)),
  );
  const imports = entries.map((entry) => `console.log(Object.keys(await import('${entry}')).length > 0);`);
  writeFileSync(join(folder, 'all.mjs'), `${imports.join('\n')}\nprocess.exit();\n`);
  const lines = (await run(process.execPath, ['all.mjs'], folder)).trim().split('\n');
  assert.deepEqual(
    lines,
    entries.map(() => 'true'),
  );
});
