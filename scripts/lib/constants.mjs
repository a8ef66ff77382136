import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT, workspacePackages } from './workspace.mjs';

const INTRODUCTION = `# Constants

Every time, size and count that decides behaviour, with its default. What each means, and the flag that sets it where there is one, stands in the
file that heads its list; \`npm run generate\` writes this page from them. What breaks first, and at how many, is in [LIMITS.md](LIMITS.md).
`;

/** The key of each entry with its documentation, of the one object in a file. */
const ENTRY = /\/\*\*(?:(?!\*\/).)*\*\/\s*(\w+):/gs;
/** The name of the object, with its documentation. */
const HEAD = /\/\*\*(?:(?!\*\/).)*\*\/\s*export const (\w+)/s;

const TIMES = [
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
  [1, 'ms'],
];
const SIZES = [
  [1024 ** 2, 'MiB'],
  [1024, 'KiB'],
  [1, 'bytes'],
];

/** Returns the page with the constants of all packages. */
export async function constantsMarkdown() {
  const files = workspacePackages()
    .map(({ path }) => ({ path, file: join(ROOT, path, 'src/defaults.ts') }))
    .filter(({ file }) => existsSync(file));
  const sections = await Promise.all(files.map(section));
  return `${[INTRODUCTION, ...sections].join('\n')}`;
}

async function section({ path, file }) {
  const text = readFileSync(file, 'utf8');
  const head = HEAD.exec(text);
  if (!head) throw new Error(`${path}/src/defaults.ts exports no documented object`);
  const values = (await import(pathToFileURL(file).href))[head[1]];
  const told = new Set([...text.slice(head.index + head[0].length).matchAll(ENTRY)].map(([, key]) => key));
  const missing = Object.keys(values).filter((key) => !told.has(key));
  if (missing.length > 0) throw new Error(`${path}/src/defaults.ts does not say what these are: ${missing.join(', ')}`);
  const list = Object.entries(values).map(([key, value]) => `${key} ${shown(key, value)}`);
  return [`## [${path}](../${path}/src/defaults.ts)`, '', `${list.join(', ')}.`, ''].join('\n');
}

function shown(key, value) {
  if (typeof value !== 'number')
    return Array.isArray(value) ? value.map((each) => shown(key, each)).join(', ') : String(value);
  if (/(?:Ms|^ms)$/.test(key)) return inUnits(value, TIMES);
  if (/(?:Bytes|^bytes)$/.test(key)) return inUnits(value, SIZES);
  return value.toLocaleString('en');
}

/** In the greatest unit of which it is a whole number. */
function inUnits(value, units) {
  const [size, name] = units.find(([each]) => value >= each && value % each === 0) ?? units.at(-1);
  return `${(value / size).toLocaleString('en')} ${name}`;
}
