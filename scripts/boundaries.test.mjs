import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { command } from './lib/command.mjs';
import { ROOT } from './lib/workspace.mjs';

const LAYERS = {
  'libs/proto': 'layer:proto',
  'libs/tunnel': 'layer:core',
  'libs/flags': 'layer:lib',
  'libs/registry': 'layer:lib',
  'libs/service': 'layer:lib',
  'libs/transport': 'layer:lib',
  'apps/agent': 'layer:app',
  'apps/hub': 'layer:app',
  'apps/server': 'layer:composition',
  test: 'layer:test',
};
const DEPENDENCIES = {
  'libs/proto': [],
  'libs/tunnel': ['libs/proto'],
  'libs/flags': [],
  'libs/registry': ['libs/tunnel'],
  'libs/service': ['libs/flags'],
  'libs/transport': ['libs/tunnel'],
  'apps/agent': ['libs/transport'],
  'apps/hub': ['libs/registry', 'libs/transport'],
  'apps/server': ['apps/hub'],
  test: ['apps/server', 'libs/proto'],
};
const nameOf = (path) => `@fixture/${path.split('/').at(-1)}`;

const EXPORTED = { '.': './src/index.ts', './testing': './src/testing.ts' };

/** Names that a sound workspace exports, and the import by which another package uses each. */
const EXPORTS = {
  'libs/tunnel/src/words.ts': 'export const used = 1, lazy = 2; export type Word = string;',
  'libs/tunnel/src/index.ts':
    "import 'node:events'; import '@fixture/proto'; export * from './words.ts'; export class Flag {}",
  'libs/tunnel/src/testing.ts': 'export const onlyForTests = 1;',
  'libs/transport/src/use.ts': `
    import { type Flag, used as renamed } from '@fixture/tunnel';
    export const { lazy } = await import('@fixture/tunnel');
    export type Word = import('@fixture/tunnel').Word;`,
};

/** For each rule, one change of a sound workspace, and what the check must report. */
const BREACHES = [
  {
    when: 'a library depends on its sibling',
    change: ({ addPackage }) => addPackage('libs/transport', ['libs/tunnel', 'libs/registry']),
    says: '@fixture/transport (layer:lib) must not depend on @fixture/registry (layer:lib)',
  },
  {
    when: 'a package depends on a sibling above it',
    change: ({ addPackage }) => addPackage('libs/flags', ['libs/service']),
    says: '@fixture/flags (layer:lib) must not depend on @fixture/service (layer:lib)',
  },
  {
    when: 'an app depends on another app',
    change: ({ addPackage }) => addPackage('apps/agent', ['libs/transport', 'apps/hub']),
    says: '@fixture/agent (layer:app) must not depend on @fixture/hub (layer:app)',
  },
  {
    when: 'the bottom depends on the top',
    change: ({ addPackage }) => addPackage('libs/proto', ['apps/agent']),
    says: '@fixture/proto (layer:proto) must not depend on @fixture/agent (layer:app)',
  },
  {
    when: 'a package has no layer',
    change: ({ addPackage }) => addPackage('test', ['apps/server'], { tags: ['test'] }),
    says: '@fixture/test: must have one tag of layer:proto, layer:core, layer:lib, layer:app, layer:composition, layer:workspace, layer:test, has none',
  },
  {
    when: 'a source imports a package that is not declared',
    change: ({ write }) =>
      write('libs/registry/src/deep/late.ts', "export const late = () => import('ioredis/built/x.js');"),
    says: 'libs/registry/src/deep/late.ts imports ioredis, which libs/registry/package.json does not declare',
  },
  {
    when: 'a source takes a mere type from a package that is not declared',
    change: ({ write }) => write('libs/tunnel/src/type.ts', "export type { Thing } from '@fixture/registry/thing';"),
    says: 'libs/tunnel/src/type.ts imports @fixture/registry, which libs/tunnel/package.json does not declare',
  },
  {
    when: 'a library imports a module of Node that is not in its list',
    change: ({ write }) => {
      write('libs/tunnel/src/sockets.ts', "import type { Socket } from 'node:net';");
      write('libs/tunnel/src/sockets.test.ts', "import net from 'node:net';");
      write('libs/tunnel/src/testing/sockets.ts', "import net from 'node:net';");
      write('apps/agent/src/sockets.ts', "import net from 'node:net';");
    },
    says: 'libs/tunnel/src/sockets.ts imports node:net: scripts/lib/boundaries.mjs lists what libs/tunnel may import',
  },
  {
    when: 'a relative import leaves the package',
    change: ({ write }) => write('libs/tunnel/src/reach.ts', "import '../../proto/src/index.ts';"),
    says: 'libs/tunnel/src/reach.ts imports ../../proto/src/index.ts, which is outside libs/tunnel: import the package by its name',
  },
  {
    when: 'a package exports what only itself imports',
    change: ({ write }) => {
      write('libs/registry/src/index.ts', "export { kept as given } from './kept.ts';");
      write('libs/registry/src/kept.ts', 'export const kept = 1;');
      write('libs/registry/src/kept.test.ts', "import { given } from '@fixture/registry';");
    },
    says: 'libs/registry/src/index.ts exports given, which no other package imports',
  },
  {
    when: 'a package exports whole a module of which others import a part',
    change: ({ write }) =>
      write('libs/tunnel/src/words.ts', 'export const used = 1, lazy = 2, spare = 3; export type Word = string;'),
    says: 'libs/tunnel/src/index.ts exports spare, which no other package imports',
  },
  {
    when: 'an entry point is no source',
    change: ({ addPackage }) =>
      addPackage('libs/proto', ['apps/agent'], {
        exports: { '.': './src/index.ts', './wire': 'dist/wire.js' },
      }),
    says: 'libs/proto/package.json exports ./wire, which is no source',
  },
  {
    when: 'a package exports whole another package',
    change: ({ write }) => write('libs/service/src/index.ts', "import 'node:fs'; export * from '@fixture/flags';"),
    says: 'libs/service/src/index.ts exports all of @fixture/flags: others import that from @fixture/flags itself',
  },
];

describe('package boundaries', () => {
  let root;
  before(() => {
    root = mkdtempSync(join(tmpdir(), 'isthmus-boundaries-'));
    symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
    write('package.json', { name: 'fixture', private: true, workspaces: ['libs/*', 'apps/*', 'test'] });
    write('nx.json', { analytics: false, neverConnectToCloud: true, useDaemonProcess: false });
    for (const [path, uses] of Object.entries(DEPENDENCIES)) addPackage(path, uses);
    for (const [path, source] of Object.entries(EXPORTS)) write(path, source);
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  function write(path, content) {
    const file = join(root, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
  }

  function addPackage(path, uses, { tags = [LAYERS[path]], exports = EXPORTED } = {}) {
    write(`${path}/package.json`, {
      name: nameOf(path),
      version: '1.0.0',
      exports,
      nx: { tags },
      dependencies: Object.fromEntries(uses.map((use) => [nameOf(use), '1.0.0'])),
    });
    const builtin = path.startsWith('libs/') ? [] : ["import 'node:fs';"];
    write(`${path}/src/index.ts`, [...builtin, ...uses.map((use) => `import '${nameOf(use)}';`)].join('\n'));
  }

  function check() {
    return command([process.execPath, join(ROOT, 'scripts', 'boundaries.mjs'), root]);
  }

  test('hold if dependencies point one way', async () => {
    const { status, output } = await check();
    assert.match(output, /^10 packages, 0 boundaries broken$/m);
    assert.equal(status, 0);
  });

  describe('break', () => {
    let lines;
    before(async () => {
      for (const { change } of BREACHES) change({ write, addPackage });
      const { status, output } = await check();
      assert.equal(status, 1);
      lines = output.trimEnd().split('\n');
    });

    for (const { when, says } of BREACHES) {
      test(`when ${when}`, () => assert.ok(lines.includes(says), `not said: ${says}\nbut:\n${lines.join('\n')}`));
    }

    test('in no other way', () => {
      assert.equal(lines.at(-1), `10 packages, ${BREACHES.length} boundaries broken`);
    });
  });
});
