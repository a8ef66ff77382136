import { isBuiltin } from 'node:module';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { unusedExports } from './exports.mjs';
import { readModule } from './modules.mjs';
import { filesBelow, workspacePackages } from './workspace.mjs';

/** What a package of each layer may depend on. Within a layer, only the pairs in BESIDE may depend on each other. */
const MAY_DEPEND_ON = {
  'layer:proto': [],
  'layer:core': ['layer:proto'],
  'layer:lib': ['layer:core', 'layer:proto'],
  'layer:app': ['layer:lib', 'layer:core', 'layer:proto'],
  'layer:composition': ['layer:app', 'layer:lib', 'layer:core', 'layer:proto'],
  // The root: whatever applies to all packages at once.
  'layer:workspace': [],
  'layer:test': ['layer:composition', 'layer:app', 'layer:lib', 'layer:core', 'layer:proto'],
};

/** Within a layer: which package may depend on which others, by their directories. */
const BESIDE = {
  // A connection guards what it calls.
  'libs/http2': ['libs/runtime'],
  // An advice for each error of a dial.
  'libs/findings': ['libs/tunnel'],
  // Test certificates have the names that peers look for.
  'libs/certificates': ['libs/tunnel'],
  // A program starts by reading its flags.
  'libs/service': ['libs/flags'],
  // The admin port is part of a program, lists its flags, explains routes, and serves the console's page.
  'libs/admin': ['libs/console', 'libs/directory', 'libs/flags', 'libs/service'],
  // The entries of an agent's lists of destinations are rules; a gateway's strategies are the directory's.
  'libs/flags': ['libs/admission', 'libs/directory'],
  // Sessions are counted as the directory reports them.
  'libs/telemetry': ['libs/directory'],
  // Puts a server together.
  'libs/plane': [
    'libs/admin',
    'libs/admission',
    'libs/flags',
    'libs/kube',
    'libs/directory',
    'libs/service',
    'libs/telemetry',
    'libs/transport',
  ],
};

/**
 * Which of Node's modules the sources of a library may import; tests and programs may import any. The core and the codecs are pure:
 * they know streams and events, and no sockets, files or clocks of the system.
 */
const NODE_MODULES = {
  'libs/proto': [],
  // Runs in browsers, but for page.ts, which bundles it.
  'libs/console': ['fs'],
  'libs/findings': [],
  // The secrets of tunnels that can be resumed.
  'libs/tunnel': ['crypto', 'events', 'stream', 'util'],
  // A type only: a connection gets its socket.
  'libs/http2': ['events', 'net', 'stream'],
  'libs/certificates': ['crypto'],
  'libs/runtime': [
    ...['crypto', 'dns', 'events', 'fs', 'https', 'net', 'os', 'perf_hooks', 'stream', 'timers', 'tls', 'v8', 'vm'],
  ],
  'libs/flags': ['crypto', 'fs', 'net', 'os', 'path', 'tls'],
  'libs/kube': ['child_process', 'crypto', 'fs', 'http', 'https', 'path', 'timers'],
  'libs/directory': ['crypto', 'net', 'timers', 'tls', 'util'],
  'libs/transport': ['crypto', 'dns', 'events', 'fs', 'http', 'net', 'stream', 'timers', 'tls'],
  'libs/telemetry': ['events', 'fs', 'net', 'process', 'timers', 'tls', 'util', 'zlib'],
  'libs/service': ['events', 'fs', 'http', 'net', 'os', 'process', 'stream'],
  // Certificates and signatures; files are read elsewhere.
  'libs/admission': ['crypto'],
  'libs/plane': ['crypto', 'fs', 'http', 'https', 'path', 'timers', 'tls'],
  'libs/admin': [
    ...['crypto', 'events', 'fs', 'http', 'http2', 'inspector', 'net', 'os', 'path', 'process', 'stream', 'tls', 'v8'],
  ],
};

/**
 * Returns every way in which the packages break their boundaries, one line each.
 * @param root the workspace's directory
 * @param graph the `graph` that `nx graph --file=x.json` wrote about it
 */
export function violations(root, graph) {
  const packages = workspacePackages(root);
  return [
    ...layerViolations(graph),
    ...packages.flatMap((each) => importViolations(each, root)),
    ...unusedExports(root),
  ];
}

/** Dependencies point one way. */
function layerViolations({ nodes, dependencies }) {
  const layers = new Map();
  const found = [];
  for (const [name, { data }] of Object.entries(nodes)) {
    const tags = (data.tags ?? []).filter((tag) => tag.startsWith('layer:'));
    if (tags.length === 1 && Object.hasOwn(MAY_DEPEND_ON, tags[0])) layers.set(name, tags[0]);
    else
      found.push(
        `${name}: must have one tag of ${Object.keys(MAY_DEPEND_ON).join(', ')}, has ${tags.join(', ') || 'none'}`,
      );
  }
  for (const { source, target } of Object.values(dependencies).flat()) {
    const [from, to] = [layers.get(source), layers.get(target)];
    const beside = from === to && BESIDE[nodes[source].data.root]?.includes(nodes[target].data.root);
    if (from && to && !beside && !MAY_DEPEND_ON[from].includes(to))
      found.push(`${source} (${from}) must not depend on ${target} (${to})`);
  }
  return found;
}

/** A package may import only what its own package.json names, and its own files. */
function importViolations({ dir, path, manifest }, root) {
  const declared = new Set([
    manifest.name,
    ...Object.keys({ ...manifest.dependencies, ...manifest.devDependencies, ...manifest.peerDependencies }),
  ]);
  return filesBelow(join(dir, 'src'), (file) => /\.tsx?$/.test(file)).flatMap((file) =>
    [...importsOf(file)].flatMap((specifier) => {
      const where = relative(root, file);
      if (specifier.startsWith('.')) {
        const inside = resolve(dirname(file), specifier).startsWith(dir + sep);
        return inside
          ? []
          : [`${where} imports ${specifier}, which is outside ${path}: import the package by its name`];
      }
      if (isBuiltin(specifier)) {
        const allowed = isTest(file) || !path.startsWith('libs/') || NODE_MODULES[path]?.includes(moduleOf(specifier));
        return allowed
          ? []
          : [`${where} imports ${specifier}: scripts/lib/boundaries.mjs lists what ${path} may import`];
      }
      const name = packageOf(specifier);
      return declared.has(name) ? [] : [`${where} imports ${name}, which ${path}/package.json does not declare`];
    }),
  );
}

/** Whether a file is a test, or is there for tests. */
function isTest(file) {
  return /\.test\.ts$|[\\/]testing(\.ts$|[\\/])/.test(file);
}

/** `node:fs/promises` is `fs`. */
function moduleOf(builtin) {
  return builtin.replace(/^node:/, '').split('/')[0];
}

/** Returns the modules that a file imports, each once. */
function importsOf(file) {
  return new Set(readModule(file).imports.map(({ from }) => from));
}

/** Returns the package of a specifier: `@scope/name/sub/path` and `name/sub/path` without the path. */
function packageOf(specifier) {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}
