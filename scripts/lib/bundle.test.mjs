import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { bundlePrograms } from './bundle.mjs';

/** What a server needs only with some of its flags: to load it costs every other server time and memory. */
const ON_DEMAND = ['yaml', 'valibot', 'jose', 'ioredis', 'prom-client', '@grpc/grpc-js', 'nice-grpc'];

describe('the bundles of this workspace', () => {
  // The gate has made them already.
  const made = process.env.ISTHMUS_PROGRAMS;
  let bundles = made;
  before(async () => {
    bundles ??= mkdtempSync(join(tmpdir(), 'isthmus-bundles-'));
    if (!made) await bundlePrograms(bundles);
  });
  after(() => !made && rmSync(bundles, { recursive: true, force: true }));

  test('there is one of each program, and each runs', () => {
    const names = readdirSync(bundles);
    assert.deepEqual(names, ['backend-hub', 'frontend-gw', 'isthmus', 'proxy-agent', 'proxy-server']);
    for (const name of names) {
      const { stdout, stderr } = spawnSync(process.execPath, [join(bundles, name, 'main.js'), '--version'], {
        encoding: 'utf8',
      });
      assert.match(stdout, /\d+\.\d+\.\d+/, stderr);
    }
  });

  test('a server loads at its start no package that only some of its flags need', () => {
    for (const name of ['proxy-server', 'frontend-gw', 'backend-hub']) {
      const sources = sourcesOf(join(bundles, name, 'main.js'));
      const early = ON_DEMAND.filter((each) => sources.some((source) => source.includes(`/node_modules/${each}/`)));
      assert.deepEqual(early, [], name);
    }
  });

  test('the page of the console is in the bundle of a server', () => {
    const texts = readdirSync(join(bundles, 'proxy-server')).map((name) =>
      readFileSync(join(bundles, 'proxy-server', name), 'utf8'),
    );
    assert.ok(texts.some((text) => text.includes('<!doctype html>') && text.includes('console.css')));
  });
});

/** Returns the paths of the modules in a file of a bundle, and in those that it imports before it runs. */
function sourcesOf(file, seen = new Set()) {
  if (seen.has(file)) return [];
  seen.add(file);
  const imports = readFileSync(file, 'utf8').matchAll(/^(?:import|export)\b[^;]*?"(\.\/[^"]+)"/gm);
  const { sources } = JSON.parse(readFileSync(`${file}.map`, 'utf8'));
  return [...sources, ...[...imports].flatMap(([, path]) => sourcesOf(resolve(dirname(file), path), seen))];
}

describe('a workspace of two programs', () => {
  let root;
  let bundles;

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'isthmus-bundle-'));
    bundles = join(root, 'bundles');
    write('package.json', { workspaces: ['libs/*', 'apps/*'] });
    write('node_modules/pack/package.json', { name: 'pack' });
    write('node_modules/pack/index.js', 'exports.place = __dirname;');
    write('node_modules/lazy/package.json', { name: 'lazy' });
    write('node_modules/lazy/index.js', 'exports.file = __filename;');
    write('libs/core/package.json', { type: 'module' });
    write('libs/core/src/index.ts', 'export const name: string = "core";');
    for (const name of ['one', 'two']) {
      write(`apps/${name}/package.json`, { type: 'module', bin: { [name]: 'bin.js' } });
      write(`apps/${name}/src/main.ts`, mainOf(name));
    }
  });

  afterEach(() => rmSync(root, { recursive: true, force: true }));

  function write(path, contents) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), typeof contents === 'string' ? contents : JSON.stringify(contents));
  }

  function mainOf(name) {
    return [
      'import { place } from "pack";',
      'import { name } from "../../../libs/core/src/index.ts";',
      `export const said = "${name} of " + name;`,
      'export const late = () => import("lazy");',
      'export { place };',
    ].join('\n');
  }

  const mainIn = (name) => join(bundles, name, 'main.js');
  const load = (name) => import(pathToFileURL(mainIn(name)).href);

  test('each program is bundled, and needs nothing beside its bundle', async () => {
    await bundlePrograms(bundles, root);
    rmSync(join(root, 'libs'), { recursive: true });
    for (const name of ['one', 'two']) assert.equal((await load(name)).said, `${name} of core`);
  });

  test('a program that imports node:http does not load undici', async () => {
    const lines = [
      'import http, { Agent } from "node:http";',
      'const undici = process.moduleLoadList.filter((name) => name.includes("undici/undici"));',
      'console.log(typeof http.request, typeof Agent, undici.length);',
    ];
    write('apps/one/src/main.ts', lines.join('\n'));
    await bundlePrograms(bundles, root);
    const { stdout, stderr } = spawnSync(process.execPath, [mainIn('one')], { encoding: 'utf8' });
    assert.equal(stdout, 'function function 0\n', stderr);
  });

  test('packages see the same paths as on Node', async () => {
    await bundlePrograms(bundles, root);
    const { place, late } = await load('one');
    assert.equal(place, join(root, 'node_modules/pack'));
    assert.equal((await late()).file, join(root, 'node_modules/lazy/index.js'));
  });

  test('a module that asks for its own path is refused', async () => {
    write('libs/core/src/index.ts', 'export const name = import.meta.url;');
    await assert.rejects(bundlePrograms(bundles, root), /main\.js, line \d+: import\.meta stays in a bundle/);
  });

  test('a bundle that is refused leaves no other to be written', async () => {
    const names = Array.from({ length: 200 }, (_, index) => `large${index}`);
    for (const name of names)
      write(`apps/two/src/${name}.js`, `export const ${name} = ${JSON.stringify('x'.repeat(10_000))};`);
    write('apps/two/src/main.ts', names.map((name) => `export * from './${name}.js';`).join('\n'));
    write('apps/one/src/main.ts', 'console.log(import.meta.url);');
    await assert.rejects(bundlePrograms(bundles, root), /import\.meta/);
    assert.ok(existsSync(mainIn('two')));
  });

  test('a bundle does not contain the path where it was built', async () => {
    await bundlePrograms(bundles, root);
    for (const name of readdirSync(join(bundles, 'one')))
      assert.ok(!readFileSync(join(bundles, 'one', name), 'utf8').includes(root), name);
  });
});
