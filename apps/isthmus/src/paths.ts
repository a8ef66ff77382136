import { usage } from './output.ts';

/*
 * The part of kubectl's JSONPath that people use: fields, indexes, slices, [*], filters with one comparison, texts in quotes, and range.
 * A field that is missing is nothing, as in kubectl.
 */

/** Finds values below a value. */
type Step = (value: unknown) => readonly unknown[];

const STEPS: readonly (readonly [RegExp, (match: RegExpExecArray) => Step])[] = [
  [/^(?:\.?\[\*\]|\.\*)/, () => childrenOf],
  [/^\.([\w-]+)/, ([, name = '']) => fieldStep(name)],
  [/^\[\s*'([^']*)'\s*\]|^\["([^"]*)"\]/, ([, one, other]) => fieldStep(one ?? other ?? '')],
  [
    /^\[(-?\d+)\]/,
    ([, at]) =>
      (value) =>
        listOf(value).slice(Number(at), Number(at) + 1 || undefined),
  ],
  [
    /^\[(-?\d*):(-?\d*)\]/,
    ([, from, to]) =>
      (value) =>
        listOf(value).slice(Number(from), to ? Number(to) : undefined),
  ],
  [/^\[\?\(\s*@([^\s=!<>]*)\s*(?:(==|!=|<=|>=|<|>)\s*("[^"]*"|'[^']*'|[^\s)]+)\s*)?\)\]/, filterStep],
];

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function childrenOf(value: unknown): readonly unknown[] {
  return typeof value === 'object' && value !== null ? Object.values(value) : [];
}

function fieldStep(name: string): Step {
  return (value) => {
    const own = typeof value === 'object' && value !== null && Object.hasOwn(value, name);
    const found = own ? (value as Record<string, unknown>)[name] : undefined;
    return found === undefined || found === null ? [] : [found];
  };
}

function filterStep([, path = '', sign, written = '']: RegExpExecArray): Step {
  const find = pathOf(path);
  const wanted = /^["']/.test(written) ? written.slice(1, -1) : written;
  const holds = (found: unknown) => {
    const [a, b] = typeof found === 'number' ? [found, Number(wanted)] : [String(found), wanted];
    if (sign === '==') return a === b;
    if (sign === '!=') return a !== b;
    return sign === '<' ? a < b : sign === '>' ? a > b : sign === '<=' ? a <= b : a >= b;
  };
  return (value) => listOf(value).filter((each) => find(each).some((found) => sign === undefined || holds(found)));
}

/** Parses a path such as `.items[0].agent`; `$` and `@` may stand in front. Returns what finds all its values. */
export function pathOf(text: string): Step {
  let rest = text.trim().replace(/^[$@]/, '');
  const steps: Step[] = [];
  while (rest !== '' && rest !== '.') {
    const [match, step] = stepIn(rest);
    if (match === undefined) throw usage(`cannot read ${JSON.stringify(rest)} in the path ${JSON.stringify(text)}`);
    steps.push(step);
    rest = rest.slice(match.length);
  }
  return (value) => steps.reduce<readonly unknown[]>((values, step) => values.flatMap(step), [value]);
}

function stepIn(text: string): [match: string, step: Step] | [undefined] {
  for (const [pattern, made] of STEPS) {
    const match = pattern.exec(text);
    if (match) return [match[0], made(match)];
  }
  return [undefined];
}

/** Formats one value: texts as they are, objects and lists as JSON. */
export function textOf(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Prints a part of a template. */
type Part = (value: unknown) => string;

/** Parses a template of `-o jsonpath=`. */
export function template(text: string): Part {
  const words = text.match(/\{(?:"(?:\\.|[^"\\])*"|'[^']*'|[^{}"'])*\}|[^{]+|\{/g) ?? [];
  if (!words.some((word) => word.endsWith('}') && word.length > 2))
    throw usage(`-o jsonpath wants a path in braces, such as '{.items[*].id}', and not ${JSON.stringify(text)}`);
  const part = partsIn(words, false);
  if (words.length > 0) throw usage('-o jsonpath has an {end} without its {range ...}');
  return part;
}

/** Takes words until an {end}, or all. */
function partsIn(words: string[], inRange: boolean): Part {
  const parts: Part[] = [];
  for (let word = words.shift(); word !== '{end}' || !inRange; word = words.shift()) {
    if (word === '{end}') words.unshift(word);
    if (word === undefined || word === '{end}') {
      if (inRange) throw usage('-o jsonpath has a {range ...} without its {end}');
      break;
    }
    parts.push(partOf(word, words));
  }
  return (value) => parts.map((part) => part(value)).join('');
}

function partOf(word: string, words: string[]): Part {
  if (!word.startsWith('{')) return () => word;
  if (!word.endsWith('}')) throw usage(`-o jsonpath has no } for ${JSON.stringify(word + words.join(''))}`);
  const inner = word.slice(1, -1).trim();
  if (inner.startsWith('"')) return literal(inner);
  const [, ranged] = /^range\s+(.+)$/.exec(inner) ?? [];
  const find = pathOf(ranged ?? inner);
  if (ranged === undefined) return (value) => find(value).map(textOf).join(' ');
  const each = partsIn(words, true);
  return (value) => find(value).map(each).join('');
}

function literal(text: string): Part {
  try {
    const said = String(JSON.parse(text));
    return () => said;
  } catch {
    throw usage(`-o jsonpath: ${text} is no text in quotes`);
  }
}

/** Parses `-o custom-columns=NAME:.path,...`. */
export function customColumns(text: string): readonly { readonly name: string; readonly find: Step }[] {
  return text.split(',').map((column) => {
    const [, name, path] = /^([^:]+):\{?([^{}]+)\}?$/.exec(column.trim()) ?? [];
    if (name === undefined || path === undefined)
      throw usage(`-o custom-columns wants NAME:.path,..., such as AGENT:.agent, and not ${JSON.stringify(column)}`);
    return { name, find: pathOf(/^[.[$@]/.test(path) ? path : `.${path}`) };
  });
}

/** Parses a selector as of kubectl: `a=b,c!=d,e,!f`. Returns whether values have what it wants. */
export function selector(text: string, option: string): (valuesOf: (key: string) => readonly string[]) => boolean {
  const wanted = text.split(',').map((term) => {
    const [, not, key, sign, value = ''] = /^\s*(!?)([^=!\s]+)\s*(?:(==?|!=)\s*(.*?)\s*)?$/.exec(term) ?? [];
    if (key === undefined || (not && sign))
      throw usage(`${option} wants KEY=VALUE or KEY!=VALUE, with commas between, and not ${JSON.stringify(term)}`);
    const negative = not === '!' || sign === '!=';
    return { key, negative, value: sign === undefined ? undefined : value };
  });
  return (valuesOf) =>
    wanted.every(({ key, negative, value }) => {
      const values = valuesOf(key);
      return (value === undefined ? values.length > 0 : values.includes(value)) !== negative;
    });
}
