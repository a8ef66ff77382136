import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { bin, command } from './command.mjs';
import { workspacePackages } from './workspace.mjs';

const COMPILE_MS = 5 * 60_000;

/** `import { a, type b } from 'x'`, and the same with `export`. */
const NAMED = /\b(import|export)( type)? \{([^}]*)\} from '(@isthmus\/[^']+)';/g;

/** `export { a, type b } from './x.ts'`. */
const EXPORTED = /\bexport(?: type)? \{([^}]*)\} from '([^']+)';/g;

/** The module of any other import or export. */
const FROM = /(\bfrom |\bimport )'([^']+)'/g;

/**
 * Puts together a library that needs no other package: its modules as JavaScript with their types, and beside them those that it uses of other
 * packages of the workspace. A package `libs/x` becomes `dist/x`.
 * @param scratch an empty directory
 */
export async function putStandAlone({ directory, path, scratch, root }) {
  const packages = new Map(workspacePackages(root).map((each) => [each.manifest.name, each]));
  const used = Object.keys([...packages.values()].find((each) => each.path === path).manifest.dependencies ?? {});
  await compile([path, ...used.map((name) => packages.get(name).path)], scratch, root);
  const indexes = new Map();
  /** Returns the module that exports a name of a package, without its extension. */
  const moduleOf = (name, exported) => {
    const index = join(packages.get(name).path, 'src', 'index');
    if (!indexes.has(name)) indexes.set(name, exportersOf(join(root, `${index}.ts`), root));
    const found = indexes.get(name).get(exported);
    if (!found) throw new Error(`${name} does not export ${exported}`);
    return found;
  };
  const entry = join(path, 'src', 'index');
  const seen = new Set([entry]);
  for (const module of seen) {
    const put = (to) => join(directory, distOf(to));
    const specifier = (to) => {
      seen.add(to);
      const found = relative(dirname(put(module)), put(to));
      return `${found.startsWith('.') ? found : `./${found}`}.js`;
    };
    const rewrite = (text) =>
      text
        .replace(NAMED, (_all, what, type = '', names, name) => {
          const each = names.split(',').map((one) => one.trim());
          const lines = each.filter(Boolean).map((one) => {
            const [exported] = one.replace(/^type /, '').split(' as ');
            return `${what}${type} { ${one} } from '${specifier(moduleOf(name, exported))}';`;
          });
          return lines.join('\n');
        })
        .replace(FROM, (all, before, from) => {
          if (isBuiltin(from)) return all;
          if (!from.startsWith('.'))
            throw new Error(`${module} imports ${from}: a library that stands alone has it not`);
          if (from.endsWith('.js') && seen.has(sourceOf(join(dirname(put(module)), from), directory))) return all;
          return `${before}'${specifier(join(dirname(module), from.replace(/\.[jt]s$/, '')))}'`;
        });
    for (const kind of ['.js', '.d.ts']) {
      const text = rewrite(readFileSync(join(scratch, module + kind), 'utf8'));
      if (/['"]@isthmus\//.test(text))
        throw new Error(`${module}${kind} imports another package in a way that is not known here`);
      mkdirSync(dirname(put(module)), { recursive: true });
      writeFileSync(put(module) + kind, text);
    }
  }
  return distOf(entry);
}

/** `libs/wire/src/x` is at `dist/wire/x`. */
function distOf(module) {
  return module.replace(/^libs\/([^/]+)\/src\//, 'dist/$1/');
}

function sourceOf(file, directory) {
  return relative(directory, file)
    .replace(/^dist\/([^/]+)\//, 'libs/$1/src/')
    .replace(/\.js$/, '');
}

/** Returns the modules of a package by the names that they export through its index, which has nothing but `export { a, type b } from './x.ts'`. */
function exportersOf(index, root) {
  const found = new Map();
  for (const [, names, from] of readFileSync(index, 'utf8').matchAll(EXPORTED)) {
    const module = relative(root, join(dirname(index), from)).replace(/\.ts$/, '');
    for (const name of names.split(',').map((one) => one.trim().replace(/^type /, ''))) found.set(name, module);
  }
  return found;
}

/** Compiles packages' indexes and what they import. */
async function compile(paths, to, root) {
  const config = join(to, 'tsconfig.json');
  const compilerOptions = {
    ...{ noEmit: false, incremental: false, declaration: true, rootDir: root, outDir: to, stripInternal: true },
    ...{ tsBuildInfoFile: null, types: ['node'], typeRoots: [join(root, 'node_modules/@types')] },
  };
  mkdirSync(to, { recursive: true });
  const files = paths.map((path) => join(root, path, 'src/index.ts'));
  writeFileSync(config, JSON.stringify({ extends: join(root, 'tsconfig.json'), compilerOptions, files, include: [] }));
  const { status, output } = await command([bin('tsc'), '--project', config], { timeout: COMPILE_MS });
  if (status !== 0) throw new Error(`tsc: ${output}`);
}
