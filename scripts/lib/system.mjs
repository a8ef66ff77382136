import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { linked } from './elf.mjs';

const MAX_LINKS = 40;
/** What dpkg-query(1) says of a package. */
const FORMAT = ['Package', 'Version', 'Architecture'].map((field) => `\${${field}}`).join(' ');

/**
 * The root of a Linux system below a directory. It is read and never run, so it may be of another processor than this machine. All paths are
 * those that the system itself would use.
 */
export class System {
  #root;

  constructor(root = '/') {
    this.#root = root;
  }

  /** Returns where a file is on this machine. Links in the system are relative to its root. */
  file(path) {
    return join(this.#root, this.#real(path));
  }

  has(path) {
    return existsSync(this.file(path));
  }

  read(path, encoding) {
    return readFileSync(this.file(path), encoding);
  }

  /** Returns the paths of the shared libraries that a program loads, and of the loader. */
  librariesOf(program) {
    const { machine, loader } = linked(this.read(program));
    const places = this.#libraryDirectories();
    const isOurs = (path) => this.has(path) && linked(this.read(path)).machine === machine;
    const found = new Map();
    const add = (names) => {
      for (const name of names.filter((each) => !found.has(each))) {
        const path = name.startsWith('/') ? name : places.map((place) => join(place, name)).find(isOurs);
        if (!path) throw new Error(`${program} needs ${name}, which is not in ${places.join(', ')}`);
        found.set(name, path);
        add(linked(this.read(path)).libraries);
      }
    };
    add([loader, ...linked(this.read(program)).libraries]);
    return [...new Set(found.values())];
  }

  /** Returns the Debian packages that files belong to: name, version, architecture. On other systems, none. */
  packagesOf(files) {
    // Debian's list has some files below /lib and others below /usr/lib, which are one directory.
    const owner = (file) => this.#dpkg('--search', file) || this.#dpkg('--search', this.#real(file));
    const names = files.map((file) => /^([^\s,]+)[:,] /.exec(owner(file))?.[1]);
    return [...new Set(names)].filter(Boolean).map((found) => {
      const shown = this.#dpkg('--show', `--showformat=${FORMAT}`, found);
      const [name, version, architecture] = shown.split(' ');
      return { name, version, architecture };
    });
  }

  #libraryDirectories() {
    const parents = ['/lib', '/usr/lib'].filter((path) => this.has(path));
    const ofDebian = parents.flatMap((parent) =>
      readdirSync(this.file(parent))
        .filter((name) => name.includes('-linux-gnu'))
        .map((name) => join(parent, name)),
    );
    return [...ofDebian, '/lib64', '/usr/lib64', ...parents];
  }

  #dpkg(...args) {
    const database = `--admindir=${this.file('/var/lib/dpkg')}`;
    return spawnSync('dpkg-query', [database, ...args], { encoding: 'utf8' }).stdout ?? '';
  }

  /** Returns a path without links. */
  #real(path, links = 0) {
    if (links > MAX_LINKS) throw new Error(`${path}: too many links`);
    let real = '/';
    const parts = resolve('/', path).split('/').filter(Boolean);
    for (const [index, part] of parts.entries()) {
      const next = join(real, part);
      if (!lstatSync(join(this.#root, next), { throwIfNoEntry: false })?.isSymbolicLink()) {
        real = next;
        continue;
      }
      const target = resolve(dirname(next), readlinkSync(join(this.#root, next)));
      return this.#real(join(target, ...parts.slice(index + 1)), links + 1);
    }
    return real;
  }
}
