import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { bill, licences } from './image-bill.mjs';
import { programs, ROOT } from './workspace.mjs';

/** Where the image has the built repository, and Node. /isthmus is a program. */
const HOME = '/usr/lib/isthmus';
const NODE = '/usr/local/bin/node';
/** The user of upstream's image: distroless' nonroot. */
const UID = 65532;
/** What no program reads of packages: types, sources, maps and pages. */
const UNREAD = /\.([cm]?ts|map|md|markdown|flow)$/i;

/**
 * Puts the root of the image into a directory: Node with the libraries that it loads, the programs, a user, and what all of it consists of.
 * Without a shell or anything else from a distribution, an image has half the size and less to patch.
 */
export function imageRoot(directory, root = ROOT) {
  const to = (path) => join(resolve(root, directory), path);
  const put = (path, text) => {
    mkdirSync(dirname(to(path)), { recursive: true });
    writeFileSync(to(path), text);
  };
  const libraries = librariesOf(process.execPath);
  copy(process.execPath, to(NODE));
  for (const library of libraries) copy(library, to(library));
  for (const name of ['package.json', 'node_modules', 'libs', 'apps']) {
    const filter = (path) => !UNREAD.test(path);
    cpSync(join(root, name), to(join(HOME, name)), { recursive: true, verbatimSymlinks: true, filter });
  }
  for (const { path, manifest } of programs([], root)) {
    for (const [name, file] of Object.entries(manifest.bin)) addProgram(name, join(HOME, path, file), to);
  }
  put('etc/passwd', `root:x:0:0:root:/:/nologin\nnonroot:x:${UID}:${UID}:nonroot:/:/nologin\n`);
  put('etc/group', `root:x:0:\nnonroot:x:${UID}:\n`);
  put('etc/nsswitch.conf', 'hosts: files dns\n');
  const parts = bill(root, libraries);
  put(join(HOME, 'sbom.cdx.json'), `${JSON.stringify(parts, undefined, 1)}\n`);
  put(join(HOME, 'licences.txt'), licences(parts, root));
  mkdirSync(to('tmp'));
  chmodSync(to('tmp'), 0o1777);
}

/** Links a program to where upstream's manifests find it. There is no env(1) to look for Node, so its first line names Node's path. */
function addProgram(name, file, to) {
  const text = readFileSync(to(file), 'utf8').replace(/^#!.*$/m, `#!${NODE}`);
  writeFileSync(to(file), text);
  chmodSync(to(file), 0o755);
  mkdirSync(to('usr/bin'), { recursive: true });
  for (const place of [`/${name}`, `/usr/bin/${name}`]) symlinkSync(file, to(place));
}

function copy(from, to) {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(realpathSync(from), to);
}

/** Returns the paths of the shared libraries that a program loads, the loader too. */
function librariesOf(program) {
  const { status, stdout, stderr } = spawnSync('ldd', [program], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ldd ${program}: ${stderr}`);
  const found = [...stdout.matchAll(/^\s+(?:\S+ => )?(\/\S+) \(0x/gm)].map(([, path]) => path);
  if (!found.some((path) => basename(path).startsWith('libc.so'))) throw new Error(`ldd names no libc:\n${stdout}`);
  return found.filter((path) => existsSync(path));
}
