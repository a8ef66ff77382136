import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { unlessSlow } from './harness/runtime.ts';
import { root } from './k8s/manifests.ts';

const PROGRAMS = ['frontend-gw', 'backend-hub', 'proxy-agent', 'proxy-server'];

interface Stage {
  readonly copies: string[][];
  readonly runs: string[];
}

/** Returns the stages of the Containerfile, in order: what each copies from the build's context, and what it runs. */
function stages(): Stage[] {
  const found: Stage[] = [];
  for (const line of readFileSync(join(root, 'Containerfile'), 'utf8').split('\n')) {
    const [instruction, ...words] = line.trim().split(/\s+/);
    const stage = found.at(-1);
    if (instruction === 'FROM') found.push({ copies: [], runs: [] });
    if (instruction === 'COPY' && !words[0]?.startsWith('--from')) stage?.copies.push(words.slice(0, -1));
    if (instruction === 'RUN') stage?.runs.push(words.join(' '));
  }
  return found;
}

const [build, image] = stages() as [Stage, Stage];

/** The steps take half a minute, so they run only where asked for, and only once: with the system's Node. */
function notNow(): string | false {
  if (process.env.CI === undefined && unlessSlow()) return unlessSlow();
  const another = 'Deno' in globalThis || process.execPath.includes('node_modules');
  return another ? 'runs once, under the Node of the path' : false;
}

test('the image is built from files that exist, without running anything in its last stage', () => {
  for (const source of build.copies.flat()) assert.ok(existsSync(join(root, source)), `COPY ${source}`);
  assert.deepEqual(image, { copies: [], runs: [] });
});

test('each program is a command of the image', () => {
  for (const program of [...PROGRAMS, 'isthmus'])
    assert.ok(existsSync(join(root, 'node_modules/.bin', program)), program);
});

test('the steps of the build stage give an image that runs all four programs', { skip: notNow() }, async () => {
  const tree = mkdtempSync(join(tmpdir(), 'isthmus-image-'));
  after(() => rmSync(tree, { recursive: true, force: true }));
  for (const source of build.copies.flat()) {
    cpSync(join(root, source), join(tree, source), { recursive: true, filter: isInContext });
  }
  const environment = { ...withoutNpm(process.env), npm_config_prefer_offline: 'true' };
  for (const step of build.runs) await run('sh', ['-c', step], tree, environment);
  for (const program of PROGRAMS) {
    const { stdout } = await run(join(tree, 'node_modules/.bin', program), ['--help'], tree, environment);
    assert.match(stdout, /--health/, program);
  }
  const { stdout } = await run(
    join(tree, 'node_modules/.bin/isthmus'),
    ['certs', join(tree, 'pki')],
    tree,
    environment,
  );
  assert.match(stdout, /callers-ca\.pem/);
  assert.ok(!existsSync(join(tree, 'node_modules/typescript')), 'no tools are left');
  rmSync(join(tree, 'apps/server/dist/main.js'));
  await run(join(tree, 'node_modules/.bin/proxy-server'), ['--help'], tree, environment);
});

/** What .dockerignore excludes from the build: names, and endings after a leading `*`. */
const IGNORED = readFileSync(join(root, '.dockerignore'), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => line.replace('**/', ''));

function isInContext(path: string): boolean {
  const names = relative(root, path).split('/');
  return !names.some((name) =>
    IGNORED.some((ignored) => (ignored.startsWith('*') ? name.endsWith(ignored.slice(1)) : name === ignored)),
  );
}

/** Removes what `npm run` tells its children about this tree, because it is wrong in the other one. */
function withoutNpm(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith('npm_')));
}

async function run(program: string, argv: string[], cwd: string, env: NodeJS.ProcessEnv): Promise<{ stdout: string }> {
  return await promisify(execFile)(program, argv, { cwd, env, timeout: 180_000, maxBuffer: 16 * 1024 * 1024 });
}
