import { existsSync, readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/**
 * Returns the shared libraries that this Node has loaded, and the loader, as files of the Linux system below `root`: their paths there, and
 * where each can be read now. The system may be of another processor, and is never run. Then it is one of Debian's, as Node's images are.
 */
export function librariesIn(root) {
  const loaded = process.report.getReport().sharedObjects.filter((path) => path.startsWith('/'));
  const own = dirname(loaded.find((path) => basename(path) === 'libc.so.6'));
  const isSame = existsSync(join(root, own, 'libc.so.6'));
  const place = isSame ? own : multiarchIn(root);
  const [loader] = readdirSync(join(root, place)).filter((name) => name.startsWith('ld-linux'));
  const names = loaded.map((path) => basename(path)).filter((name) => !name.startsWith('ld-linux'));
  return [
    ...names.map((name) => ({ path: join(place, name), file: join(root, place, name) })),
    // Programs name it by this path, where Debian has an absolute link.
    { path: join(loader.includes('x86-64') ? '/lib64' : '/lib', loader), file: join(root, place, loader) },
  ];
}

function multiarchIn(root) {
  const found = readdirSync(join(root, 'usr/lib')).find((name) => existsSync(join(root, 'usr/lib', name, 'libc.so.6')));
  if (!found) throw new Error(`there are no libraries of Debian below ${root}`);
  return join('/usr/lib', found);
}
