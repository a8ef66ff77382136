// Runs a script of this project, on a Node that runs TypeScript: `node scripts/node.mjs SCRIPT [ARGUMENT]...`. Where this Node is too old for
// that, it fetches the one of .node-version from npm and goes on with it. Any Node that knows modules can run this file.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
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
  const node = await fetchNode(PINNED);
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

/** Fetches a version of Node from npm, once. Resolves with the path of its binary. */
export async function fetchNode(version) {
  const kept = join(ROOT, '.node', version);
  const binary = (directory) => join(directory, 'node_modules', packageOf(), 'bin', 'node');
  if (existsSync(binary(kept))) return binary(kept);
  process.stderr.write(`This is Node ${process.versions.node}. Fetching Node ${version} from npm, into .node ...\n`);
  mkdirSync(dirname(kept), { recursive: true });
  const draft = mkdtempSync(join(dirname(kept), 'draft-'));
  const args = ['install', '--prefix', draft, '--no-save', '--no-audit', '--no-fund', '--loglevel=error'];
  const status = await ended(
    spawn('npm', [...args, `${packageOf()}@${version}`], { stdio: ['ignore', 2, 2], cwd: draft }),
  );
  if (status !== 0 || !existsSync(binary(draft))) {
    rmSync(draft, { recursive: true, force: true });
    process.stderr.write(
      `npm has no ${packageOf()}@${version}: install Node ${version} (or any from 22.18 on), and try again.\n`,
    );
    process.exit(1);
  }
  // Two commands may fetch it at once: whoever is second throws its copy away.
  try {
    renameSync(draft, kept);
  } catch (error) {
    if (!existsSync(binary(kept))) throw error;
    rmSync(draft, { recursive: true, force: true });
  }
  return binary(kept);
}

function packageOf() {
  return `node-${process.platform}-${process.arch}`;
}

function ended(child) {
  return new Promise((done) => child.on('error', () => done(1)).on('close', done));
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const [file] = process.argv.splice(2, 1);
  // Not awaited: what it imports may import this module.
  run(resolve(ROOT, file));
}
