import { fileURLToPath } from 'node:url';

/** The root of the work tree: three steps up from `test/src/harness` as well as from `test/dist/harness`. */
export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

export const onDeno = process.versions.deno !== undefined;

export type ProgramName = 'proxy-server' | 'proxy-agent' | 'frontend-gw' | 'backend-hub';

const APPS: Record<ProgramName, string> = {
  'proxy-server': 'server',
  'proxy-agent': 'agent',
  'frontend-gw': 'frontend-gw',
  'backend-hub': 'backend-hub',
};

/** Returns the command that starts a program on the runtime that runs the tests: the build on Node, the sources on Deno. */
export function commandOf(name: ProgramName): readonly [string, ...string[]] {
  const app = `${ROOT}apps/${APPS[name]}`;
  if (onDeno) return [process.execPath, 'run', '-A', `${app}/src/main.ts`];
  return [process.execPath, `${app}/bin/${name}.js`];
}
