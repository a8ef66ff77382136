import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The root of the work tree. */
export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** Whether the tests run at full size, and those that take half a minute run at all, as in the second step of continuous integration. */
export const SLOW_TESTS = process.env.ISTHMUS_SLOW_TESTS !== undefined;

/** The `skip` option of a test that is slow. */
export function unlessSlow(): string | false {
  return SLOW_TESTS ? false : 'slow: set ISTHMUS_SLOW_TESTS=1';
}

export const onDeno = process.versions.deno !== undefined;

export type Flags = Readonly<Record<string, string | number | boolean | undefined>>;

export type ProgramName = 'proxy-server' | 'proxy-agent' | 'frontend-gw' | 'backend-hub';

const APPS: Record<ProgramName | 'isthmus', string> = {
  'proxy-server': 'server',
  'proxy-agent': 'agent',
  'frontend-gw': 'frontend-gw',
  'backend-hub': 'backend-hub',
  isthmus: 'isthmus',
};

/** Bundles of the programs, as they are shipped, where a run of many tests has made them; without them, programs start from sources. */
const BUNDLES = process.env.ISTHMUS_PROGRAMS;

/** The `skip` option of a test of what a program takes of memory: from sources it takes 20 MiB more. */
export function unlessBundled(): string | false {
  return BUNDLES ? false : 'programs run from sources: npm run build, and set ISTHMUS_PROGRAMS=$PWD/dist/programs';
}

/** Returns the command that starts a program on the runtime that runs the tests, or on the Node that a run of tests names. */
export function commandOf(name: keyof typeof APPS): readonly [string, ...string[]] {
  const app = `${ROOT}apps/${APPS[name]}`;
  if (onDeno) return [process.execPath, 'run', '-A', `${app}/src/main.ts`];
  return [
    process.env.ISTHMUS_NODE ?? process.execPath,
    BUNDLES ? `${BUNDLES}/${name}/main.js` : `${app}/bin/${name}.js`,
  ];
}

/** What the image tells malloc and Node (Containerfile). */
export const IMAGE_ENV = (() => {
  const said = /^ENV .* MALLOC_ARENA_MAX=(\S+) NODE_OPTIONS="(.*)"$/m.exec(
    readFileSync(`${ROOT}Containerfile`, 'utf8'),
  );
  if (!said) throw new Error('Containerfile: no ENV line with MALLOC_ARENA_MAX and NODE_OPTIONS');
  const [, arenas = '', options = ''] = said;
  return { MALLOC_ARENA_MAX: arenas, NODE_OPTIONS: options };
})();

/** The same for programs that a test starts. */
export const AS_IN_IMAGE = { ...IMAGE_ENV, NODE_OPTIONS: `--use-openssl-ca ${IMAGE_ENV.NODE_OPTIONS}` };
