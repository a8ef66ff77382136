import { yamlDocument } from '@isthmus/kube/yaml';
import * as v from 'valibot';
import { isMap, isNode, isScalar, LineCounter, type Node } from 'yaml';
import { ADMISSION } from './defaults.ts';
import { type TenantFile, tenantFile } from './tenant-schema.ts';

/** Why a file cannot be used, and where in it. Lines and columns count from 1. */
export interface Problem {
  readonly line: number;
  readonly column: number;
  /** Where in the document: `agents[0].tokens.issuer`; empty for the document itself. */
  readonly at: string;
  readonly message: string;
}

/** A tenant's file that can be used. */
export interface UsableFile {
  readonly file: TenantFile;
  /** A problem with what is at a place, such as `agents[0].tokens.issuer`. It reads the text again to find the line. */
  problem(at: string, message: string): Problem;
}

export type ReadFile = UsableFile | { readonly problems: readonly Problem[] };

/**
 * Reads a tenant's file as a whole. YAML 1.2, one document; aliases are refused, because they multiply what a reader pays.
 * @param absolute makes the path of a unix socket an absolute one, so that two spellings of one path are equal
 */
export function readTenantFile(source: string, absolute: (path: string) => string = (path) => path): ReadFile {
  if (Buffer.byteLength(source) > ADMISSION.tenantFileBytes)
    return { problems: [{ ...START, message: `the file has more than ${ADMISSION.tenantFileBytes} bytes` }] };
  const { document, place } = parsed(source);
  if (document.errors.length > 0)
    return { problems: firstOf(document.errors, ({ pos, message }) => ({ ...place(pos[0]), at: '', message })) };
  let value: unknown;
  try {
    value = document.toJS({ maxAliasCount: 0 });
  } catch (error) {
    return { problems: [{ ...START, message: `aliases (&, *) are not supported: ${(error as Error).message}` }] };
  }
  if (!isMap(document.contents)) return { problems: [{ ...START, message: NO_FIELDS }] };
  const result = v.safeParse(tenantFile, value);
  if (result.success) return usable(withSockets(result.output, absolute), source);
  const { contents } = document;
  return {
    problems: firstOf(result.issues, (issue) => {
      const keys = (issue.path ?? []).map(({ key }) => key as string | number);
      const message = messageOf(issue, keys);
      return { ...place(offsetOf(contents, keys, issue.expected === 'never')), at: textOf(keys), message };
    }),
  };
}

/** A line of logs and of pages each: the first ones, and how many there are more. */
function firstOf<T>(faults: readonly T[], problem: (fault: T) => Problem): Problem[] {
  const first = faults.slice(0, ADMISSION.problemsOfFile).map(problem);
  const more = faults.length - first.length;
  return more === 0 ? first : [...first, { ...START, message: `and ${more} more problems` }];
}

/** Apart from what reads the file: a function there would keep the parsed document for as long as itself. */
function usable(file: TenantFile, source: string): UsableFile {
  return { file, problem: (at, message) => problemIn(source, at, message) };
}

function withSockets(file: TenantFile, absolute: (path: string) => string): TenantFile {
  if (!file.callers) return file;
  const callers = file.callers.map((caller) => {
    const { unixSocket } = caller;
    return unixSocket === undefined ? caller : { ...caller, unixSocket: absolute(unixSocket) };
  });
  return { ...file, callers };
}

/** The last file that was parsed, until what runs now ends: it may have many problems, each with its own place. */
let last: { readonly source: string; readonly found: ReturnType<typeof parse> } | undefined;

function parsed(source: string): ReturnType<typeof parse> {
  if (last?.source === source) return last.found;
  const found = parse(source);
  last = { source, found };
  queueMicrotask(() => {
    last = undefined;
  });
  return found;
}

function parse(source: string) {
  const lines = new LineCounter();
  const document = yamlDocument(source, lines);
  const place = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  };
  return { document, place };
}

function problemIn(source: string, at: string, message: string): Problem {
  const { document, place } = parsed(source);
  const keys = at.split(/[.[\]]+/).flatMap((key) => (key === '' ? [] : /^\d+$/.test(key) ? Number(key) : key));
  return { ...place(offsetOf(document.contents as Node, keys, false)), at, message };
}

const NO_FIELDS = 'expected fields, such as "tenant: acme"';

const START = { line: 1, column: 1, at: '' };

/**
 * Where the value at a path begins, or its key. A field that is missing is reported where its parent begins.
 */
function offsetOf(contents: Node, keys: readonly (string | number)[], ofKey: boolean): number {
  let node: Node = contents;
  for (const [index, key] of keys.entries()) {
    const last = index === keys.length - 1;
    const pair = isMap(node)
      ? node.items.find((each) => isScalar(each.key) && String(each.key.value) === key)
      : undefined;
    if (last && ofKey && isNode(pair?.key)) node = pair.key;
    else {
      const next = 'getIn' in node ? (node.getIn([key], true) as unknown) : undefined;
      if (!isNode(next)) break;
      node = next;
    }
  }
  return node.range?.[0] ?? 0;
}

function textOf(keys: readonly (string | number)[]): string {
  return keys.map((key, index) => (typeof key === 'number' ? `[${key}]` : `${index ? '.' : ''}${key}`)).join('');
}

function messageOf(
  { type, expected, received, message }: v.BaseIssue<unknown>,
  keys: readonly (string | number)[],
): string {
  if (type !== 'strict_object') return message;
  const [of, last] = [keys.at(-2), keys.at(-1)];
  // A list has its numbers for fields.
  if (expected === 'never' && of === 'tokens' && last === '0')
    return 'expected the fields of an issuer: what isthmus tenants token prints goes below passwords';
  if (expected === 'never') return `unknown field ${last}`;
  if (received === 'undefined') return `${last} is missing`;
  return of === 'passwords' ? 'expected what isthmus tenants token prints' : 'expected fields';
}

/** What is wrong, after the place in the file's content: `limits.tunnels: expected a number`. */
export function problemMessage({ at, message }: Pick<Problem, 'at' | 'message'>): string {
  return at === '' ? message : `${at}: ${message}`;
}

/** As compilers write it: `acme.yaml:3:5: limits.tunnels: expected a number`. A problem of an object has no line. */
export function problemText(path: string, problem: Problem): string {
  if (problem.line === 0) return `${path}: ${problemMessage(problem)}`;
  return `${path}:${problem.line}:${problem.column}: ${problemMessage(problem)}`;
}
