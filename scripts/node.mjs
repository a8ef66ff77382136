// Runs a script of this project, on a Node that runs TypeScript: `node scripts/node.mjs SCRIPT [ARGUMENT]...`. Where this Node is too old for
// that, it fetches the one of .node-version from npm and goes on with it. Any Node that knows modules can run this file.
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import * as nodeModule from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
/** The newest LTS: what is measured and shipped. */
const PINNED = readFileSync(join(ROOT, '.node-version'), 'utf8').trim();
/** Node runs TypeScript without a flag from these versions on. */
const OLDEST = { 22: 18, 23: 6 };

/** Imports a module of this project here, or runs it with the same arguments on a newer Node. */
export async function run(file) {
  if (isNewEnough(process.versions.node)) {
    // Without it, every start strips the types of all modules again: 1.0 s instead of 0.4 s for a server.
    nodeModule.enableCompileCache(join(ROOT, 'node_modules', '.cache', 'node'));
    await import(pathToFileURL(file).href);
    return;
  }
  process.stderr.write(`This is Node ${process.versions.node}. Going on with Node ${PINNED}, from npm ...\n`);
  const node = fetchedNode(file);
  const child = spawn(node, [file, ...process.argv.slice(2)], { stdio: 'inherit', env: withNode(node) });
  // A terminal sends these to both.
  for (const signal of ['SIGINT', 'SIGHUP']) process.on(signal, () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  child.on('exit', (status, signal) => process.exit(signal ? 1 : status));
}

function isNewEnough(version) {
  const [major, minor] = version.split('.').map(Number);
  return major > 23 || minor >= (OLDEST[major] ?? Number.POSITIVE_INFINITY);
}

/** The environment in which `node` is this one, for npm's and Nx's children. */
function withNode(node) {
  return { ...process.env, PATH: `${dirname(node)}:${process.env.PATH}` };
}

/** The pinned Node, for a script. Ends the process if there is none. */
function fetchedNode(file) {
  try {
    return fetchNode(PINNED);
  } catch ({ message }) {
    process.stderr.write(`${message}\n`);
    // The last line of npm test.
    if (file.endsWith('test.mjs')) console.log('0 passed, 1 failed');
    process.exit(1);
  }
}

/** Has npm fetch a version of Node, once. Returns the path of its binary. */
export function fetchNode(version) {
  const name = `node-${process.platform}-${process.arch}`;
  const args = [
    'exec',
    '--yes',
    '--loglevel=error',
    `--package=${name}@${version}`,
    '--',
    'node',
    '-p',
    'process.execPath',
  ];
  const { status, stdout } = spawnSync('npm', args, { stdio: ['ignore', 'pipe', 2], encoding: 'utf8' });
  if (status === 0) return stdout.trim();
  throw new Error(`npm has no ${name}@${version}: install Node ${version} (or any from 22.18 on), and try again.`);
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const [file] = process.argv.splice(2, 1);
  // Not awaited: what it imports may import this module.
  run(resolve(ROOT, file));
}
