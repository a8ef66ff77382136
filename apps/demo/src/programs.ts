import { fileURLToPath } from 'node:url';

export type ProgramName = 'proxy-server' | 'proxy-agent' | 'frontend-gw' | 'backend-hub';

const DIRECTORIES: Record<ProgramName, string> = {
  'proxy-server': 'server',
  'proxy-agent': 'agent',
  'frontend-gw': 'frontend-gw',
  'backend-hub': 'backend-hub',
};

/** How to start one of the programs on the runtime that runs this: the build on Node, the sources on Deno. */
export function commandOf(program: ProgramName): readonly [string, ...string[]] {
  const app = fileURLToPath(new URL(`../../${DIRECTORIES[program]}`, import.meta.url));
  if (process.versions.deno !== undefined) return [process.execPath, 'run', '-A', `${app}/src/main.ts`];
  return [process.execPath, `${app}/bin/${program}.js`];
}
