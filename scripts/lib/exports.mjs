import { dirname, join, relative, resolve } from 'node:path';
import ts from 'typescript';
import { filesBelow, workspacePackages } from './workspace.mjs';

/**
 * Returns every name that a package exports and no other package imports, one line each: entry points hold what others use. Imports in
 * tests of other packages count. Entry points for tests (`./testing`) are not checked. An export that cannot be checked also gives a line.
 */
export function unusedExports(root) {
  const packages = workspacePackages(root);
  const imported = namesByEntry(packages);
  return packages.flatMap(entriesOf).flatMap(({ specifier, manifestFile, path, source }) => {
    if (!source) return [`${relative(root, manifestFile)} exports ${path} without the source that \`deno\` names`];
    const file = resolve(dirname(manifestFile), source);
    const names = exportsOf(file);
    const others = foreignStars(file).map(
      (from) => `${relative(root, file)} exports all of ${from}: others import that from ${from} itself`,
    );
    const used = imported.get(specifier) ?? new Set();
    const unused = used.has('*') ? [] : [...names].filter((name) => !used.has(name)).sort();
    return [
      ...others,
      ...unused.map((name) => `${relative(root, file)} exports ${name}, which no other package imports`),
    ];
  });
}

/** Returns the entry points of a package: the name by which others import each, and its source. package.json has the source for Deno. */
function entriesOf({ dir, manifest }) {
  return Object.entries(manifest.exports ?? {})
    .filter(([path]) => !path.startsWith('./testing'))
    .map(([path, entry]) => ({
      ...{ specifier: join(manifest.name, path), path },
      ...{ manifestFile: join(dir, 'package.json'), source: entry?.deno },
    }));
}

/** Returns the names that other packages import from each entry point; `*` if one of them imports all. */
function namesByEntry(packages) {
  const found = new Map();
  const names = packages.map(({ manifest }) => manifest.name);
  for (const { dir, manifest } of packages) {
    for (const file of filesBelow(dir, (path) => /\.(ts|m?js)$/.test(path))) {
      const text = ts.sys.readFile(file) ?? '';
      if (!names.some((name) => text.includes(name))) continue;
      for (const { from, name } of importsOf(parsed(file, text))) {
        if (from === manifest.name || from.startsWith(`${manifest.name}/`)) continue;
        found.set(from, (found.get(from) ?? new Set()).add(name));
      }
    }
  }
  return found;
}

function parsed(file, text = ts.sys.readFile(file) ?? '') {
  return ts.createSourceFile(file, text, ts.ScriptTarget.Latest);
}

/** Returns every name that a module imports or re-exports, and where from; `*` for all names of a module. */
function importsOf(tree) {
  const found = [];
  const add = (from, names) => found.push(...names.map((name) => ({ from: from.text, name })));
  const visit = (node) => {
    if (ts.isImportDeclaration(node)) {
      if (node.importClause?.namedBindings) add(node.moduleSpecifier, namesIn(node.importClause.namedBindings));
    } else if (ts.isExportDeclaration(node)) {
      if (node.moduleSpecifier) add(node.moduleSpecifier, namesIn(node.exportClause));
    } else if (ts.isVariableDeclaration(node) && isAwaitedImport(node.initializer)) {
      add(node.initializer.expression.arguments[0], namesIn(node.name));
    } else if (isImportCall(node)) {
      add(node.arguments[0], ['*']);
    } else if (ts.isImportTypeNode(node)) {
      add(node.argument.literal, [node.qualifier?.text ?? '*']);
    } else ts.forEachChild(node, visit);
  };
  visit(tree);
  return found;
}

/** Returns a and b for `{ a, b as c }` and `{ a, b: c }`, and `*` for a whole module. */
function namesIn(bindings) {
  return bindings?.elements?.map(({ propertyName, name }) => (propertyName ?? name).text) ?? ['*'];
}

/** Whether a node is `import('x')` with a literal. */
function isImportCall(node) {
  const calls = ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword;
  return calls && ts.isStringLiteralLike(node.arguments[0]);
}

function isAwaitedImport(node) {
  return node !== undefined && ts.isAwaitExpression(node) && isImportCall(node.expression);
}

/** Returns every name that a module exports, including those of modules that it exports as a whole. */
function exportsOf(file) {
  const names = parsed(file).statements.flatMap((statement) => {
    if (!ts.isExportDeclaration(statement)) return isExported(statement) ? declared(statement) : [];
    const { exportClause: clause, moduleSpecifier } = statement;
    if (!clause) return isRelative(moduleSpecifier) ? [...exportsOf(beside(file, moduleSpecifier))] : [];
    return ts.isNamedExports(clause) ? clause.elements.map(({ name }) => name.text) : [clause.name.text];
  });
  return new Set(names);
}

/** Returns the packages that a module, or a module that it exports as a whole, exports as a whole. */
function foreignStars(file) {
  return parsed(file).statements.flatMap((statement) => {
    if (!ts.isExportDeclaration(statement) || statement.exportClause) return [];
    const { moduleSpecifier } = statement;
    return isRelative(moduleSpecifier) ? foreignStars(beside(file, moduleSpecifier)) : [moduleSpecifier.text];
  });
}

function isRelative({ text }) {
  return text.startsWith('.');
}

function beside(file, { text }) {
  return resolve(dirname(file), text);
}

function isExported(statement) {
  const modifiers = ts.canHaveModifiers(statement) ? ts.getModifiers(statement) : undefined;
  return modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) ?? false;
}

function declared(statement) {
  const declarations = ts.isVariableStatement(statement) ? statement.declarationList.declarations : [statement];
  return declarations.map(({ name }) => name.text);
}
