import { access, constants } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { inWords } from '@isthmus/tunnel';
import { adminPlace, type Call, type CommonOptions } from './command.ts';
import { Kubeconfig } from './kubeconfig.ts';
import { EXIT, type ExitStatus, usage } from './output.ts';
import { table } from './table.ts';
import type { Terminal } from './terminal.ts';

/*
 * Contexts of the operator: which plane to ask, with which certificates, for which tenant. Their file has the shape of a kubeconfig, and
 * names files with certificates and keys; none of their contents are in it.
 */

/** The options that a context may give. */
type ContextOptions = Pick<CommonOptions, 'address' | 'ca' | 'cert' | 'key' | 'tenant'>;

const CONTEXT_FIELDS = ['address', 'ca', 'cert', 'key', 'tenant'] as const satisfies (keyof ContextOptions)[];

/** Where an option's value comes from, as commander says it. */
export type SourceOf = (option: string) => string | undefined;

/** The file of ISTHMUSCONFIG, or ~/.isthmus/config; undefined where there is no HOME either. */
function contextsPath({ env: { ISTHMUSCONFIG, HOME } }: Pick<Terminal, 'env'>): string | undefined {
  if (ISTHMUSCONFIG) return resolve(ISTHMUSCONFIG);
  return HOME ? join(HOME, '.isthmus', 'config') : undefined;
}

/** @throws Failure where there is no place for it */
function placeOfContexts(terminal: Pick<Terminal, 'env'>): string {
  const path = contextsPath(terminal);
  if (path === undefined) throw usage('there is no ISTHMUSCONFIG and no HOME: name the file with ISTHMUSCONFIG');
  return path;
}

/**
 * Options with what a context gives. Options of the command line count before a context. Those of the environment count before the current
 * context, and after one that --context names. An address that counts before the current context replaces all of it: its certificates
 * are for another plane.
 */
export async function withContext<O extends CommonOptions>(
  options: O,
  sourceOf: SourceOf,
  terminal: Pick<Terminal, 'env'>,
): Promise<O> {
  const { context: named } = options;
  const counts = (option: string) => {
    const source = sourceOf(option);
    return source === 'cli' || (source === 'env' && named === undefined);
  };
  if (named === undefined && counts('address')) return options;
  const path = named === undefined ? contextsPath(terminal) : placeOfContexts(terminal);
  if (path === undefined) return options;
  // A service may have a home that is another user's, or no directory.
  if (named === undefined && !terminal.env.ISTHMUSCONFIG && !(await isReadable(path))) return options;
  const config = Kubeconfig.read([path]);
  const name = named ?? config.currentContext;
  if (name === '') return options;
  const others = Object.entries(options).filter(([option]) => !isField(option) || counts(option));
  return { ...contextOf(config, name), ...Object.fromEntries(others) } as O;
}

function isReadable(path: string): Promise<boolean> {
  return access(path, constants.R_OK).then(
    () => true,
    () => false,
  );
}

function isField(text: string): text is keyof ContextOptions {
  return CONTEXT_FIELDS.some((field) => field === text);
}

/** Reads a context. Names of files are relative to its file. @throws Failure */
function contextOf(config: Kubeconfig, name: string): ContextOptions {
  const entry = config.entry('contexts', name)?.context;
  if (!entry) throw usage(`${config.path} has no context ${JSON.stringify(name)}: isthmus config get-contexts`);
  const wrong = (what: string) => usage(`${config.path}: context ${name}: ${what}`);
  const values = Object.entries(entry).map(([field, value]) => {
    if (!isField(field))
      throw wrong(`there is no ${JSON.stringify(field)}: a context has ${CONTEXT_FIELDS.join(', ')}`);
    const texts = field === 'address' ? [value].flat() : [value];
    if (!texts.every((text) => typeof text === 'string' && text !== '')) throw wrong(`${field} is no text`);
    return [field, texts as string[]] as const;
  });
  const {
    address = [],
    tenant: [tenant = ''] = [],
    ...files
  }: Partial<Record<string, string[]>> = Object.fromEntries(values);
  if (address.length === 0) throw wrong(`it has no address: isthmus config set-context ${name} --address HOST:PORT`);
  const paths = Object.entries(files).map(([field, [file = ''] = []]) => [field, resolve(dirname(config.path), file)]);
  try {
    return { address: address.map(adminPlace), tenant, ...Object.fromEntries(paths) };
  } catch (error) {
    throw wrong(inWords(error));
  }
}

/** What `isthmus config` does with contexts, by kubectl's words. Those that change something need a name. */
export const CONTEXT_ACTIONS = [
  'get-contexts',
  'current-context',
  'use-context',
  'set-context',
  'delete-context',
] as const;

export type ContextAction = (typeof CONTEXT_ACTIONS)[number];

export async function contextAction(action: ContextAction, name: string | undefined, call: Call): Promise<ExitStatus> {
  const path = placeOfContexts(call.terminal);
  if (action === 'get-contexts') showContexts(Kubeconfig.read([path]), call, name);
  else if (action === 'current-context') showCurrent(Kubeconfig.read([path]), call);
  else if (name === undefined) throw usage(`name the context: isthmus config ${action} NAME`);
  else if (action === 'use-context') {
    await Kubeconfig.change([path], (config) => {
      contextOf(config, name);
      config.currentContext = name;
    });
    call.output.show({ context: name }, ({ context }) => `Switched to context "${context}".\n`);
  } else if (action === 'delete-context') await deleteContext(path, name, call);
  else await setContext(path, name, call);
  return EXIT.good;
}

/** The current context stays current, so that no command asks another plane unasked. */
async function deleteContext(path: string, name: string, { output }: Call): Promise<void> {
  let active = false;
  await Kubeconfig.change([path], (config) => {
    if (!config.delete('contexts', name)) throw usage(`${config.path} has no context ${JSON.stringify(name)}`);
    active = config.currentContext === name;
  });
  if (active) output.remark(`${JSON.stringify(name)} was the current context: isthmus config use-context NAME`);
  output.show({ context: name, done: 'deleted' }, ({ context }) => `Context "${context}" deleted.\n`);
}

/** Changes what the command line names, and leaves the rest. An empty text takes a field away. */
async function setContext(path: string, name: string, { options, output, given }: Call): Promise<void> {
  const fields = CONTEXT_FIELDS.filter((field) => given(`--${field}`)).map((field) => {
    const value = options[field];
    if (field === 'address') return [field, options.address.length > 1 ? options.address : options.address[0]];
    return [field, value === '' ? undefined : field === 'tenant' ? value : resolve(String(value))];
  });
  let known = false;
  await Kubeconfig.change([path], (config) => {
    known = config.names('contexts').includes(name);
    config.put('contexts', name, Object.fromEntries(fields));
    contextOf(config, name);
    if (config.currentContext === '') config.currentContext = name;
  });
  const done = known ? 'modified' : 'created';
  output.show({ context: name, done }, ({ context }) => `Context "${context}" ${done}.\n`);
}

function showCurrent({ path, currentContext }: Kubeconfig, { output }: Call): void {
  if (currentContext === '') throw usage(`${path} has no current context: isthmus config use-context NAME`);
  output.show({ context: currentContext }, ({ context }) => `${context}\n`);
}

function showContexts(config: Kubeconfig, { output }: Call, only: string | undefined): void {
  const names = only === undefined ? config.names('contexts') : [only];
  const contexts = names.map((name) => ({
    name,
    current: name === config.currentContext,
    ...contextOf(config, name),
  }));
  output.show({ contexts }, ({ contexts: shown }, style) => {
    const rows = shown.map(({ name, current, address, ca = '', cert = '', tenant }) => {
      return [current ? '*' : ' ', name, address.join(','), ca, cert, tenant];
    });
    return table(['current', 'name', 'address', 'ca', 'cert', 'tenant'], rows, style);
  });
}
