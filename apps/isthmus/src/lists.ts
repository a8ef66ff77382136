import timers from 'node:timers/promises';
import { Argument, Option } from 'commander';
import { type Call, command, type Definition } from './command.ts';
import { ISTHMUS } from './defaults.ts';
import {
  cleaned,
  EXIT,
  type ExitStatus,
  Failure,
  type Style,
  statusOf,
  styleOf,
  unansweredText,
  usage,
} from './output.ts';
import type { Unanswered } from './plane/member.ts';
import { type Column, foldedProse, table } from './table.ts';

/** A column of a list, with what it shows of an object. */
export interface ListColumn<V> extends Column {
  of(view: V, style: Style): string;
  /** Its cells change by themselves, as ages do, so that a change is no news for `--watch`. */
  readonly moves?: true;
}

/** A kind of object of which there are lists. All lists are filtered, watched and printed by one mechanism. */
export interface Kind<V extends object, M extends object = object> {
  /** `agents`: the list in JSON. */
  readonly name: string;
  /** `agent`, for `-o name`. */
  readonly one: string;
  /** The words by which one is asked for. The first is its name. */
  names(view: V): readonly string[];
  columns(items: readonly V[]): readonly ListColumn<V>[];
  /** Its objects are past: what is no longer listed is forgotten, not gone. */
  readonly past?: true;
  /** What `--selector` looks at. */
  labels?(view: V): Readonly<Record<string, readonly string[]>>;
  ask(call: Call): Promise<Listed<V, M>>;
}

/** The objects of a kind, as members answered. */
export interface Listed<V, M extends object = object> {
  readonly items: readonly V[];
  readonly unanswered: readonly Unanswered[];
  /** Further fields of the document. @param all the chosen ones, before `--limit` cuts the list */
  more?(all: readonly V[]): M;
  /** The list for people. */
  text(items: readonly V[], style: Style, of: Whole<V, M>): string;
  /** What the list says of the plane, whatever of it was chosen. Unset: all is well. */
  readonly status?: ExitStatus;
}

/** What a list is cut from, and what belongs to it. */
export interface Whole<V, M extends object = object> {
  readonly all: readonly V[];
  readonly more: M;
  readonly unanswered: readonly Unanswered[];
}

export interface ListOptions {
  readonly watch?: true;
  /** False for `--no-headers`. */
  readonly headers?: boolean;
  readonly fieldSelector?: string;
  readonly selector?: string;
  /** In lists that have it, how many objects to print. With `--watch`, it bounds those that are there at the beginning. */
  readonly limit?: number;
}

/** Makes the command of a list: by its kind it has a name, arguments, options behind its own, and what it runs. */
export function listCommand<V extends object, M extends object, O extends ListOptions = ListOptions>(
  kind: Kind<V, M>,
  own: Pick<Definition, 'summary' | 'examples'> & Partial<Definition<O>>,
): Definition {
  const named = new Argument('[name...]', `only ${kind.name} with these names`);
  return command<O>({
    name: kind.name,
    lists: true,
    args: [named],
    run: (call) => list(kind, call),
    ...own,
    options: [...(own.options ?? []), ...listOptions(kind)],
  });
}

function listOptions(kind: Pick<Kind<never>, 'labels'>): Option[] {
  const labels = '-l, --selector <labels>';
  return [
    new Option('-w, --watch', 'after the list, print what comes, changes and goes'),
    new Option('--no-headers', 'print the rows alone'),
    new Option('--field-selector <fields>', 'only those with these fields of -o json: state=ready,tenant!=acme'),
    ...(kind.labels ? [new Option(labels, 'only those with these identifiers: host=db.internal,cidr=10.0.0.0/8')] : []),
  ];
}

export function rowsTable<V>(columns: readonly ListColumn<V>[], items: readonly V[], style: Style): string {
  return table(columns, rowsOf(columns, items, style), style);
}

function rowsOf<V>(columns: readonly ListColumn<V>[], items: readonly V[], style: Style): string[][] {
  return items.map((item) => columns.map((column) => column.of(item, style)));
}

/** Prints the objects of a kind: all, or those that the command line names and filters choose. */
export async function list<V extends object, M extends object>(
  kind: Kind<V, M>,
  call: Call<ListOptions>,
  names = (call.args[0] ?? []) as readonly string[],
): Promise<ExitStatus> {
  const chosen = chooser(kind, names, call.options);
  if (call.options.watch) return await watched(kind, call, chosen);
  const listed = await kind.ask(call);
  const all = listed.items.filter(chosen);
  const { limit } = call.options;
  const items = all.slice(0, limit);
  const [first] = items;
  const single = names.length === 1 && all.length === 1 && first !== undefined && kind.names(first)[0] === names[0];
  const unheard = listed.items.length === 0 && listed.unanswered.length > 0 && (await nobodyTold(call, listed));
  // Without one that was chosen, or any answer, the text would say that the plane has none.
  const text =
    items.length > 0 || (listed.items.length === 0 && !unheard)
      ? listed.text
      : () => (names.length > 0 || unheard ? '' : `None of the ${kind.name} match\n`);
  print(kind, call, { ...listed, items, text }, all, single);
  const unknown = names.filter((name) => !all.some((item) => kind.names(item).includes(name)));
  if (unknown.length > 0) throw missing(kind.one, unknown, listed.unanswered);
  return (unheard ? undefined : listed.status) ?? statusOf(false, listed.unanswered);
}

async function nobodyTold(call: Call, { unanswered }: Pick<Listed<never>, 'unanswered'>): Promise<boolean> {
  const { members } = await call.plane();
  return members.every(({ id }) => unanswered.some(({ member }) => member === id));
}

/** One that a silent member may know is not known to be missing. */
export function missing(one: string, names: readonly string[], unanswered: readonly Unanswered[]): Failure {
  return new Failure(unanswered.length > 0 ? EXIT.unasked : EXIT.wrong, `there is no ${one} ${names.join(', ')}`);
}

function chooser<V extends object, M extends object>(kind: Kind<V, M>, names: readonly string[], options: ListOptions) {
  const { fieldSelector, selector: labels } = options;
  const fields = fieldSelector === undefined ? undefined : selector(fieldSelector, '--field-selector');
  const labelled = labels === undefined ? undefined : selector(labels, '--selector');
  return (item: V) => {
    if (names.length > 0 && !kind.names(item).some((name) => names.includes(name))) return false;
    if (labelled && !labelled((key) => kind.labels?.(item)[key] ?? [])) return false;
    return !fields || fields((key) => valuesAt(item, key.split('.')));
  };
}

/** The texts of a field; `error.code` is a field of a field. A list has several, and what is missing none. */
function valuesAt(value: unknown, [key, ...deeper]: readonly string[]): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((each) => valuesAt(each, key === undefined ? [] : [key, ...deeper]));
  if (value === undefined || value === null) return [];
  if (key === undefined) return [typeof value === 'object' ? JSON.stringify(value) : String(value)];
  const own = typeof value === 'object' && Object.hasOwn(value, key);
  return own ? valuesAt((value as Record<string, unknown>)[key], deeper) : [];
}

/** Parses a selector as kubectl does: `a=b,c!=d,e,!f`. Returns whether values have what it wants. */
export function selector(text: string, option: string): (valuesOf: (key: string) => readonly string[]) => boolean {
  const wanted = text.split(',').map((term) => {
    const [, not, key, sign, value = ''] = /^(!?)([^=!\s]+)\s*(?:(==?|!=)(.*))?$/.exec(term.trim()) ?? [];
    if (key === undefined || (not && sign))
      throw usage(`${option} wants KEY=VALUE or KEY!=VALUE, with commas between, and not ${JSON.stringify(term)}`);
    const negative = not === '!' || sign === '!=';
    return { key, negative, value: sign === undefined ? undefined : value.trim() };
  });
  return (valuesOf) =>
    wanted.every(({ key, negative, value }) => {
      const values = valuesOf(key);
      return (value === undefined ? values.length > 0 : values.includes(value)) !== negative;
    });
}

function print<V extends object, M extends object>(
  kind: Kind<V, M>,
  { output, options, terminal }: Call<ListOptions>,
  listed: Listed<V, M>,
  all: readonly V[],
  single: boolean,
) {
  const { style, format } = output;
  const more = listed.more?.(all);
  const { items, unanswered } = cleaned({ items: listed.items, unanswered: listed.unanswered });
  const silent = unansweredText(unanswered);
  const bare = options.headers === false;
  if (format === 'name') {
    terminal.out(items.map((item) => `${kind.one}/${kind.names(item)[0]}\n`).join(''));
  } else if (output.forPeople) {
    const columns = kind.columns(items);
    const of = cleaned({ all, more: more ?? ({} as M), unanswered });
    const text = bare ? rowsTable(columns, items, { ...style, headers: false }) : listed.text(items, style, of);
    terminal.out(foldedProse(text + (bare ? '' : silent), style));
  } else {
    const [first] = listed.items;
    const total = options.limit === undefined ? {} : { total: all.length };
    const whole = { [kind.name]: listed.items, ...total, ...more, unanswered: listed.unanswered };
    output.show(single && first ? first : whole, () => '');
  }
  // Who reads rows, names or one object learns of silent members on standard error.
  const apart = format === 'name' || (output.forPeople ? bare : single);
  if (silent !== '' && apart) terminal.err(foldedProse(silent.trimStart(), style));
}

/** One that came, changed or went. */
interface Change<V> {
  readonly event: 'added' | 'changed' | 'gone';
  readonly item: V;
}

/** Objects that have been told of, with what was news about each. */
type Known<V> = Map<string, { readonly item: V; readonly news: string }>;

/** Asks again and again until it is interrupted, and prints changes. */
async function watched<V extends object, M extends object>(
  kind: Kind<V, M>,
  call: Call<ListOptions>,
  chosen: (item: V) => boolean,
): Promise<ExitStatus> {
  const known: Known<V> = new Map();
  const { interrupted } = call.terminal;
  const tell = call.output.forPeople ? rowTeller(kind, call) : documentTeller(kind, call);
  for (let { limit } = call.options; !interrupted.aborted; limit = undefined) {
    const { items, unanswered } = await kind.ask(call);
    const changes = changesIn(kind, known, items.filter(chosen), unanswered.length === 0);
    if (changes.length > 0) tell(changes.slice(0, limit));
    await timers.setTimeout(ISTHMUS.listAgainMs, undefined, { signal: interrupted }).catch(() => {});
    if (!interrupted.aborted) await (await call.plane()).meet();
  }
  return EXIT.good;
}

/** Compares with what is known, and notes it. @param all whether all members answered: what a silent one knows is not gone */
function changesIn<V extends object, M extends object>(
  kind: Kind<V, M>,
  known: Known<V>,
  items: readonly V[],
  all: boolean,
): Change<V>[] {
  const plain = styleOf(false);
  const changes: Change<V>[] = [];
  const there = new Set<string>();
  for (const item of items) {
    const key = JSON.stringify([(item as { tenant?: unknown }).tenant, kind.names(item)[0]]);
    const columns = kind.columns([item]).filter(({ moves }) => !moves);
    const news = JSON.stringify(rowsOf(columns, [item], plain));
    const before = known.get(key);
    if (before?.news !== news) changes.push({ event: before ? 'changed' : 'added', item });
    known.set(key, { item, news });
    there.add(key);
  }
  for (const [key, { item }] of all ? known : []) {
    if (there.has(key)) continue;
    known.delete(key);
    if (!kind.past) changes.push({ event: 'gone', item });
  }
  return changes;
}

type Tell<V> = (changes: readonly Change<V>[]) => void;

/** Prints rows under one head. Later rows are as wide as the first ones. */
function rowTeller<V extends object, M extends object>(
  kind: Kind<V, M>,
  { output, options, terminal }: Call<ListOptions>,
): Tell<V> {
  let first: readonly Change<V>[] | undefined;
  const words = { added: output.style.good, changed: output.style.warning, gone: output.style.bad };
  return (seen) => {
    const changes = cleaned(seen);
    const columns: ListColumn<Change<V>>[] = [
      { name: 'event', of: ({ event }) => words[event](event.padEnd('changed'.length)) },
      ...kind.columns((first ?? changes).map(({ item }) => item)).map((column) => {
        return { ...column, of: ({ item }: Change<V>, style: Style) => column.of(item, style) };
      }),
    ];
    const headers = !first && options.headers !== false;
    const style = { ...output.style, headers, printed: first?.length ?? 0 };
    terminal.out(rowsTable(columns, [...(first ?? []), ...changes], style));
    first ??= changes;
  };
}

function documentTeller<V extends object, M extends object>(
  kind: Kind<V, M>,
  { output, terminal }: Call<ListOptions>,
): Tell<V> {
  return (changes) => {
    for (const { event, item } of changes) {
      if (output.format === 'name') terminal.out(`${kind.one}/${kind.names(cleaned(item))[0]}\n`);
      else output.line({ event, [kind.one]: item }, () => '');
    }
  };
}
