import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { currentBundle } from '../../libs/service/dist/current-bundle.js';
import { bundle } from './bundle.mjs';
import { programs } from './workspace.mjs';

test('each program of this workspace runs from its bundle once it is built', () => {
  const asModules = programs().filter(({ dir }) => !currentBundle(distOf(dir)));
  assert.deepEqual(
    asModules.map(({ path }) => path),
    [],
    'these would run as modules; `npm run build` makes their bundles',
  );
});

/** What a server needs only with some of its flags: to load it costs every other server time and memory. */
const ON_DEMAND = ['yaml', 'valibot', 'jose', 'ioredis', 'prom-client', '@grpc/grpc-js', 'nice-grpc'];

test('a server loads at its start no package that only some of its flags need', () => {
  for (const { dir, path } of programs().filter(({ path }) => /server|frontend-gw|backend-hub/.test(path))) {
    const sources = sourcesOf(currentBundle(distOf(dir)));
    const early = ON_DEMAND.filter((name) => sources.some((source) => source.includes(`/node_modules/${name}/`)));
    assert.deepEqual(early, [], path);
  }
});

/** Returns the paths of the modules in a file of a bundle, and in those that it imports before it runs. */
function sourcesOf(url, seen = new Set()) {
  if (seen.has(url.href)) return [];
  seen.add(url.href);
  const imports = readFileSync(url, 'utf8').matchAll(/^(?:import|export)\b[^;]*?"(\.\/[^"]+)"/gm);
  const { sources } = JSON.parse(readFileSync(new URL(`${url.href}.map`), 'utf8'));
  return [...sources, ...[...imports].flatMap(([, path]) => sourcesOf(new URL(path, url), seen))];
}

describe('a workspace of two programs', () => {
  let root;

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'isthmus-bundle-'));
    write('package.json', { workspaces: ['libs/*', 'apps/*', 'test'] });
    write('node_modules/.package-lock.json', {});
    write('node_modules/pack/package.json', { name: 'pack' });
    write('node_modules/pack/index.js', 'exports.place = __dirname;');
    write('node_modules/lazy/package.json', { name: 'lazy' });
    write('node_modules/lazy/index.js', 'exports.file = __filename;');
    addPackage('libs/core', [], { 'dist/index.js': 'export const name = "core";' });
    addPackage('apps/one', ['libs/core'], { 'dist/main.js': mainOf('one') });
    addPackage('apps/two', ['libs/core'], { 'dist/main.js': mainOf('two') });
    addPackage('test', ['apps/two'], {});
    for (const name of ['one', 'two']) write(`apps/${name}/package.json`, { type: 'module', bin: 'main.js' });
  });

  afterEach(() => rmSync(root, { recursive: true, force: true }));

  function write(path, contents) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), typeof contents === 'string' ? contents : JSON.stringify(contents));
  }

  function addPackage(path, references, files) {
    const up = '../'.repeat(path.split('/').length);
    write(`${path}/package.json`, { type: 'module' });
    write(`${path}/tsconfig.json`, { references: references.map((to) => ({ path: `${up}${to}` })) });
    write(`${path}/dist/.tsbuildinfo`, path);
    for (const [name, contents] of Object.entries(files)) write(`${path}/${name}`, contents);
  }

  function mainOf(name) {
    return [
      'import { place } from "pack";',
      'import { name } from "../../../libs/core/dist/index.js";',
      `export const said = "${name} of " + name;`,
      'export const late = () => import("lazy");',
      'export { place };',
    ].join('\n');
  }

  const current = (app) => currentBundle(distOf(join(root, 'apps', app)));
  const bundlesOf = (app) => join(root, 'apps', app, 'dist/bundle');

  test('the same files make the same bundle, wherever they are', async () => {
    const elsewhere = join(root, 'a-longer-name');
    for (const name of readdirSync(root)) cpSync(join(root, name), join(elsewhere, name), { recursive: true });
    const named = async (place) => {
      await bundle([], { root: place, image: true });
      return JSON.parse(readFileSync(join(place, 'apps/one/dist/bundle/current.json'), 'utf8')).directory;
    };
    assert.equal(await named(elsewhere), await named(root));
  });

  test('all programs are bundled if no projects are named', async () => {
    await bundle([], { root });
    for (const app of ['one', 'two']) assert.equal((await import(current(app))).said, `${app} of core`);
  });

  test('only programs that projects refer to are bundled with them, since others may never have been built', async () => {
    rmSync(join(root, 'apps/one/dist'), { recursive: true });
    await bundle(['test'], { root });
    assert.ok(current('two'));
    assert.ok(!existsSync(bundlesOf('one')));
  });

  for (const path of ['node_modules/.package-lock.json', 'libs/core/dist/.tsbuildinfo', 'apps/one/dist/.tsbuildinfo']) {
    test(`a bundle is out of date if ${path} is newer, until the next one is made`, async () => {
      await bundle(['apps/one'], { root });
      utimesSync(join(root, path), 1, 1);
      assert.equal(current('one'), undefined);
      await bundle(['apps/one'], { root });
      assert.ok(current('one'));
    });
  }

  test('a program ignores the build of a package that it does not use', async () => {
    await bundle([], { root });
    utimesSync(join(root, 'apps/two/dist/.tsbuildinfo'), 1, 1);
    assert.ok(current('one'));
  });

  test('the bundle of an image needs nothing beside it', async () => {
    await bundle([], { root, image: true });
    for (const path of ['libs', 'test', 'node_modules/.package-lock.json', 'apps/one/dist/main.js'])
      rmSync(join(root, path), { recursive: true });
    assert.equal((await import(current('one'))).said, 'one of core');
  });

  test('a program that imports node:http does not load undici', async () => {
    const lines = [
      'import http, { Agent } from "node:http";',
      'const undici = process.moduleLoadList.filter((name) => name.includes("undici/undici"));',
      'console.log(typeof http.request, typeof Agent, undici.length);',
    ];
    write('apps/one/dist/main.js', lines.join('\n'));
    await bundle(['apps/one'], { root });
    const { stdout, stderr } = spawnSync(process.execPath, [fileURLToPath(current('one'))], { encoding: 'utf8' });
    assert.equal(stdout, 'function function 0\n', stderr);
  });

  test('a running program finds its parts after another build', async () => {
    await bundle([], { root });
    const running = await import(current('one'));
    write('node_modules/lazy/index.js', 'exports.file = "another";');
    await bundle([], { root });
    assert.equal((await running.late()).file, join(root, 'node_modules/lazy/index.js'));
  });

  test('two builds at once leave one complete bundle', async () => {
    await Promise.all([bundle([], { root }), bundle([], { root })]);
    assert.equal((await import(current('two'))).said, 'two of core');
    assert.equal(readdirSync(bundlesOf('two')).length, 2, 'the bundle, and the file that names it');
  });

  test('the last five builds are kept, and drafts of interrupted builds are removed', async () => {
    for (const name of ['draft-1', 'draft-2', 'main.js.77']) write(`apps/one/dist/bundle/${name}`, 'of long ago');
    for (const name of readdirSync(bundlesOf('one'))) utimesSync(join(bundlesOf('one'), name), 1, 1);
    for (let build = 0; build < 6; build++) {
      write('libs/core/dist/index.js', `export const name = "core ${build}";`);
      await bundle(['apps/one'], { root });
    }
    const left = readdirSync(bundlesOf('one')).filter((name) => name !== 'current.json');
    assert.equal(left.length, 5);
    for (const name of left) assert.ok(existsSync(join(bundlesOf('one'), name, 'main.js')), name);
    assert.equal((await import(current('one'))).said, 'one of core 5');
  });

  test('packages see the same paths as on Node', async () => {
    await bundle([], { root });
    const { place, late } = await import(current('one'));
    assert.equal(place, join(root, 'node_modules/pack'));
    assert.equal((await late()).file, join(root, 'node_modules/lazy/index.js'));
  });

  test('a module that asks for its own path is refused', async () => {
    write('libs/core/dist/index.js', 'export const name = import.meta.url;');
    await assert.rejects(bundle([], { root }), /main\.js, line \d+: import\.meta stays in a bundle/);
  });

  test('a bundle does not contain the path where it was built', async () => {
    await bundle([], { root });
    const directory = dirname(fileURLToPath(current('one')));
    for (const name of readdirSync(directory))
      assert.ok(!readFileSync(join(directory, name), 'utf8').includes(root), name);
  });
});

function distOf(dir) {
  return pathToFileURL(join(dir, 'dist/'));
}
