import { type ParseArgsConfig, parseArgs } from 'node:util';

/** What `parseArgs` takes, and for the help: what a value is called (`NAME`), and what the option does. */
type Options = {
  readonly [name: string]: NonNullable<ParseArgsConfig['options']>[string] & {
    readonly value?: string;
    readonly says: string;
  };
};

/** An option that chooses among things by their names. */
export const NAMES = { type: 'string', multiple: true, default: [] as string[], value: 'NAME' } as const;

export function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Says how a run ended, in its last line, and gives the process its status: that nothing ran is no success. */
export function conclude(passed: number, failed: number, skipped = 0): void {
  say(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`);
  process.exitCode = failed > 0 || passed + skipped === 0 ? 1 : 0;
}

/** Says what is wrong with the command line, and ends this process. */
export function misused(what: string): never {
  process.stderr.write(`${what}\n--help shows all options.\n`);
  process.exit(2);
}

/**
 * Reads the command line of `npm run COMMAND`. Ends this process after `--help`, or if there is an unknown option.
 * @param notes printed below the options
 */
export function commandLine<T extends Options>(command: string, options: T, notes = '') {
  if (process.argv.includes('--help')) {
    say(usage(command, options, notes));
    process.exit(0);
  }
  // Files, behind a switch.
  const allowPositionals = Object.values(options).some(({ type, value }) => type === 'boolean' && value !== undefined);
  try {
    return parseArgs<{ options: T; allowPositionals: boolean }>({ options, allowPositionals });
  } catch (error) {
    return misused((error as Error).message);
  }
}

function usage(command: string, options: Options, notes: string): string {
  const heads = Object.entries(options).map(([name, { value = '' }]) => `--${name} ${value}`);
  const width = Math.max(...heads.map(({ length }) => length));
  const lines = Object.values(options).map(({ says }, index) => `  ${heads[index]?.padEnd(width)}  ${says}`);
  return [`npm run ${command} [-- OPTIONS]`, ...lines, ...(notes ? [notes] : [])].join('\n');
}

/** Returns those with the given names, or all if none is given. @param fits whether a name is meant */
export function chosen<T extends { readonly name: string }>(
  all: readonly T[],
  given: readonly string[],
  fits: (given: string, name: string) => boolean = (given, name) => given === name,
): readonly T[] {
  const unknown = given.filter((each) => !all.some(({ name }) => fits(each, name)));
  if (unknown.length > 0) misused(`There is no ${unknown.join(', ')}.`);
  return given.length === 0 ? all : all.filter(({ name }) => given.some((each) => fits(each, name)));
}

/** Aborts when this process is told to end, or the one that started it has. */
export function interrupted(): AbortSignal {
  const controller = new AbortController();
  for (const event of ['SIGINT', 'SIGTERM', 'disconnect']) {
    process.once(event, () => {
      process.exitCode = 130;
      controller.abort(new Error('stopped from outside'));
    });
  }
  process.channel?.unref();
  return controller.signal;
}
