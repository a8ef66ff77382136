import { fileURLToPath } from 'node:url';

export type ProgramName = 'proxy-server' | 'proxy-agent' | 'frontend-gw' | 'backend-hub';

const DIRECTORIES: Record<ProgramName, string> = {
  'proxy-server': 'server',
  'proxy-agent': 'agent',
  'frontend-gw': 'frontend-gw',
  'backend-hub': 'backend-hub',
};

/** Returns how to start a program on the current runtime: sources on both. */
export function commandOf(program: ProgramName): readonly [string, ...string[]] {
  const app = fileURLToPath(new URL(`../../${DIRECTORIES[program]}`, import.meta.url));
  if (process.versions.deno !== undefined) return [process.execPath, 'run', '-A', `${app}/src/main.ts`];
  return [process.execPath, `${app}/bin/${program}.js`];
}
