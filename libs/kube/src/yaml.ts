import {
  Composer,
  type CST,
  type Document,
  isScalar,
  Lexer,
  type LineCounter,
  type Node,
  Parser,
  visit,
  YAMLParseError,
} from 'yaml';
import { KUBE } from './defaults.ts';

/**
 * Parses a YAML document that somebody else wrote, in bounded time. By itself the library compares each key of a mapping with all before it, and
 * each alias with every anchor: 200 KB then take half a minute. No tag makes anything else of a mapping or a list.
 */
export function yamlDocument(text: string, lines?: LineCounter): Document.Parsed {
  const composer = new Composer({
    ...{ prettyErrors: false, uniqueKeys: false, stringKeys: true, schema: 'core', resolveKnownTags: false },
  });
  const long: YAMLParseError[] = [];
  const documents = composer.compose(tokensOf(text, lines, long), true, text.length);
  const document = documents.next().value as Document.Parsed;
  const second = documents.next().value as Document.Parsed | undefined;
  const { errors } = document;
  const deep = errors.find(({ code }) => code === 'RESOURCE_EXHAUSTION');
  if (long.length > 0) document.errors = long;
  else if (deep) document.errors = [fault(deep.pos[0], TOO_DEEP)];
  else if (second) errors.push(fault(second.range[0], 'it has several documents'));
  else if (errors.length === 0) document.errors = faultsIn(document);
  return document;
}

/** @throws Error that says why it is not such a document */
export function yamlValue(text: string): unknown {
  const document = yamlDocument(text);
  if (document.errors[0]) throw document.errors[0];
  return document.toJS();
}

/** Ends early where there are too many. */
function* tokensOf(text: string, lines: LineCounter | undefined, faults: YAMLParseError[]): Generator<CST.Token> {
  const parser = new Parser(lines?.addNewLine);
  lines?.addNewLine(0);
  let left = KUBE.yamlPieces;
  for (const piece of new Lexer().lex(text)) {
    if (--left < 0) {
      faults.push(fault(0, `it has more than ${KUBE.yamlPieces} words, signs, blanks and line ends`));
      return;
    }
    yield* parser.next(piece);
  }
  yield* parser.end();
}

const TOO_DEEP = 'it is nested too deep';

function faultsIn(document: Document.Parsed): YAMLParseError[] {
  const faults: YAMLParseError[] = [];
  let aliases = 0;
  const refused = (node: Node, message: string) => {
    faults.push(fault(offsetOf(node), message));
    return visit.BREAK;
  };
  visit(document, {
    Alias: (_at, node) =>
      ++aliases > KUBE.yamlAliases ? refused(node, `it has more than ${KUBE.yamlAliases} aliases`) : undefined,
    Seq: (_at, node, { length }) => (length > KUBE.yamlDepth ? refused(node, TOO_DEEP) : undefined),
    Map: (_at, node, { length }) => {
      if (length > KUBE.yamlDepth) return refused(node, TOO_DEEP);
      const seen = new Set<unknown>();
      for (const { key } of node.items) {
        if (!isScalar(key)) continue;
        if (seen.has(key.value)) faults.push(fault(offsetOf(key), 'Map keys must be unique'));
        seen.add(key.value);
      }
      return undefined;
    },
  });
  return faults;
}

function fault(at: number, message: string): YAMLParseError {
  return new YAMLParseError([at, at + 1], 'IMPOSSIBLE', message);
}

function offsetOf({ range }: Node): number {
  return range?.[0] ?? 0;
}
