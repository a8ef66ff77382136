import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { unlessSlow } from './harness/runtime.ts';
import { root } from './k8s/manifests.ts';

const PROGRAMS = ['frontend-gw', 'backend-hub', 'proxy-agent', 'proxy-server'];

interface Stage {
  readonly name: string | undefined;
  readonly copies: string[][];
  readonly runs: string[];
  entrypoint?: string;
}

/** Returns the stages of the Containerfile, in order: what each copies from the build's context, and what it runs. */
function stages(): Stage[] {
  const found: Stage[] = [];
  for (const line of readFileSync(join(root, 'Containerfile'), 'utf8').split('\n')) {
    const [instruction, ...words] = line.trim().split(/\s+/);
    const stage = found.at(-1);
    if (instruction === 'FROM') found.push({ name: words[2], copies: [], runs: [] });
    if (instruction === 'COPY' && !words[0]?.startsWith('--from')) stage?.copies.push(words.slice(0, -1));
    if (stage && instruction === 'ENTRYPOINT') stage.entrypoint = words.join(' ');
    if (instruction === 'RUN') stage?.runs.push(words.join(' '));
  }
  return found;
}

/** How long one step may take, in milliseconds: a whole build on a machine that is busy and slow. */
const STEP_TIMEOUT = 540_000;

const [node, build, ...images] = stages() as [Stage, Stage, ...Stage[]];

test('the image is built from files that exist, and only its build stage runs anything', () => {
  for (const source of build.copies.flat()) assert.ok(existsSync(join(root, source)), `COPY ${source}`);
  for (const { copies, runs } of [node, ...images]) assert.deepEqual([copies, runs], [[], []]);
});

test('each program has a target that takes arguments alone, and the last target takes any command', () => {
  for (const program of PROGRAMS) {
    assert.equal(images.find(({ name }) => name === program)?.entrypoint, `["/${program}"]`);
  }
  assert.deepEqual([images.at(-1)?.name, images.at(-1)?.entrypoint], [undefined, undefined]);
});

test('each program is a command of the image', () => {
  for (const program of [...PROGRAMS, 'isthmus'])
    assert.ok(existsSync(join(root, 'node_modules/.bin', program)), program);
});

test('the same file builds for amd64 and arm64', () => {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const ofLinux = (cpu: string) =>
    (Object.values(packages) as { cpu?: string[]; os?: string[]; resolved?: string }[])
      .filter((each) => each.cpu?.includes(cpu) && each.os?.includes('linux'))
      .map(({ resolved = '' }) =>
        resolved.replace(/.*\/([^/]+)\.tgz$/, '$1').replace(cpu === 'x64' ? 'x64' : /arm64|aarch64/, ''),
      );
  const [amd64, arm64] = [ofLinux('x64'), ofLinux('arm64')];
  assert.ok(amd64.length > 0);
  assert.deepEqual(
    amd64.filter((name) => !arm64.includes(name)),
    [],
    'packages that are there for amd64 alone',
  );
  const text = readFileSync(join(root, 'Containerfile'), 'utf8');
  assert.doesNotMatch(text, /amd64|x86_64|x64|arm64|aarch64/);
});

// The steps install and build everything, beside nothing else: with the slow tests.
test('the steps of the build stage give an image that runs all four programs', { skip: unlessSlow() }, async () => {
  const tree = mkdtempSync(join(tmpdir(), 'isthmus-image-'));
  after(() => rmSync(tree, { recursive: true, force: true }));
  for (const source of build.copies.flat()) {
    cpSync(join(root, source), join(tree, source), { recursive: true, filter: isInContext });
  }
  const environment = { ...withoutNpm(process.env), npm_config_prefer_offline: 'true' };
  // Here, the system with Node is this machine.
  for (const step of build.runs) await run('sh', ['-c', step.replace(/ \/node$/, ' /')], tree, environment);
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
  await assertRoot(join(tree, 'rootfs'));
});

/** Fails unless the image's root has all programs at both paths, which run by themselves. */
async function assertRoot(rootfs: string): Promise<void> {
  for (const program of [...PROGRAMS, 'isthmus']) {
    for (const path of [program, `usr/bin/${program}`]) {
      assert.ok(existsSync(join(rootfs, readlinkSync(join(rootfs, path)))), path);
    }
    if (process.getuid?.() !== 0) continue;
    // Nothing of this machine is there: what starts has all that it needs.
    const alone = ['--userspec=65532:65532', rootfs, `/${program}`, '--version'];
    const { stdout } = await run('chroot', alone, '/', { PATH: `${process.env.PATH}:/usr/sbin` });
    assert.match(stdout, /\d+\.\d+\.\d+/, program);
  }
}

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
  return await promisify(execFile)(program, argv, { cwd, env, timeout: STEP_TIMEOUT, maxBuffer: 16 * 1024 * 1024 });
}
