// The last step of the Containerfile's build: `node scripts/image-root.mjs DIR SYSTEM` puts what the image holds below DIR, and nothing else.
// Below SYSTEM is Node for the image's processor, with its libraries. Like everything that it imports, it needs only node:*.
import { chmodSync, copyFileSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { librariesIn } from './lib/system.mjs';
import { copyPrograms, ROOT } from './lib/workspace.mjs';

/** Where the image has the programs' bundles, and Node. /isthmus is a program. */
const HOME = '/usr/lib/isthmus';
const NODE = '/usr/local/bin/node';
/** The user of upstream's image: distroless' nonroot. */
const UID = 65532;

/**
 * Puts the root of the image into a directory: Node with the libraries that it loads, the programs, and a user.
 * Without a shell or anything else from a distribution, an image has half the size and less to patch.
 * @param from the root of a system with the Node that runs this, for the processor of the image: only Node and libraries are not the same
 *   for all
 */
function imageRoot(directory, from) {
  const to = (path) => join(resolve(ROOT, directory), path);
  const put = (path, content) => {
    mkdirSync(dirname(to(path)), { recursive: true });
    writeFileSync(to(path), content);
  };
  for (const { path, file } of [{ path: NODE, file: join(from, process.execPath) }, ...librariesIn(from)]) {
    mkdirSync(dirname(to(path)), { recursive: true });
    copyFileSync(file, to(path));
    chmodSync(to(path), 0o755);
  }
  put(join(HOME, 'package.json'), '{"type": "module"}\n');
  for (const name of copyPrograms(join(ROOT, 'dist', 'programs'), to(HOME), NODE)) addProgram(name, to);
  put('etc/passwd', `root:x:0:0:root:/:/nologin\nnonroot:x:${UID}:${UID}:nonroot:/:/nologin\n`);
  put('etc/group', `root:x:0:\nnonroot:x:${UID}:\n`);
  put('etc/nsswitch.conf', 'hosts: files dns\n');
  mkdirSync(to('tmp'));
  chmodSync(to('tmp'), 0o1777);
}

/** Links a program to where upstream's manifests find it. There is no env(1) to look for Node, so its first line names Node's path. */
function addProgram(name, to) {
  const file = join(HOME, 'bin', `${name}.js`);
  chmodSync(to(file), 0o755);
  mkdirSync(to('usr/bin'), { recursive: true });
  for (const place of [`/${name}`, `/usr/bin/${name}`]) symlinkSync(file, to(place));
}

const [directory = 'rootfs', system = '/'] = process.argv.slice(2);
imageRoot(directory, system);
