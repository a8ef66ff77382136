import { readFileSync } from 'node:fs';
import { parseSync, Visitor } from 'oxc-parser';

/**
 * Reads a module of TypeScript or JavaScript, and returns what it takes from others and gives to others:
 * - `imports`: `{ from, name }` for every name that it imports or re-exports; the name is `*` for all, and undefined for none (`import 'x'`)
 * - `exports`: the names that it exports by itself
 * - `stars`: the modules that it exports as a whole
 *
 * Throws if the file is no valid module.
 */
export function readModule(file) {
  const { program, errors } = parseSync(file, readFileSync(file, 'utf8'));
  if (errors.length > 0) throw new Error(`${file}: ${errors[0].message}`);
  const imports = [];
  const exports = [];
  const stars = [];
  const add = (source, names) => imports.push(...names.map((name) => ({ from: source.value, name })));
  const named = new Set();
  new Visitor({
    ImportDeclaration: ({ source, specifiers }) =>
      add(source, specifiers.length > 0 ? specifiers.map(importedName) : [undefined]),
    ExportNamedDeclaration({ source, declaration, specifiers }) {
      if (source)
        add(
          source,
          specifiers.map(({ local }) => nameOf(local)),
        );
      exports.push(...specifiers.map(({ exported }) => nameOf(exported)), ...declaredNames(declaration));
    },
    ExportAllDeclaration({ source, exported }) {
      add(source, ['*']);
      if (exported) exports.push(nameOf(exported));
      else stars.push(source.value);
    },
    VariableDeclarator({ id, init }) {
      if (init?.type !== 'AwaitExpression' || !isImportCall(init.argument)) return;
      named.add(init.argument);
      const names = id.type === 'ObjectPattern' ? id.properties.map(({ key }) => (key ? nameOf(key) : '*')) : ['*'];
      add(init.argument.source, names);
    },
    ImportExpression(node) {
      if (isImportCall(node) && !named.has(node)) add(node.source, ['*']);
    },
    TSImportType: ({ source, qualifier }) => add(source, [firstOf(qualifier)]),
  }).visit(program);
  return { imports, exports, stars };
}

/** Whether a node is `import('x')` with a literal. */
function isImportCall(node) {
  return node.type === 'ImportExpression' && typeof node.source.value === 'string';
}

function importedName({ type, imported }) {
  if (type === 'ImportSpecifier') return nameOf(imported);
  return type === 'ImportDefaultSpecifier' ? 'default' : '*';
}

/** Returns the text of an identifier, or of a string that stands for one. */
function nameOf({ name, value }) {
  return name ?? value;
}

/** Returns `A` for `import('x').A.B`, and `*` for `import('x')`. */
function firstOf(qualifier) {
  if (!qualifier) return '*';
  return qualifier.left ? firstOf(qualifier.left) : qualifier.name;
}

function declaredNames(declaration) {
  if (!declaration) return [];
  const declared = declaration.declarations ?? [declaration];
  return declared.map(({ id }) => nameOf(id));
}
