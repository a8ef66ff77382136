import type { Scope } from '../harness/index.ts';
import { Child } from './child.ts';
import type { FloodDone, FloodSettings, Load } from './load/messages.ts';

/** How long a flood may take to begin, in milliseconds: it opens 5,000 tunnels, and a plane that is fair lets it wait. */
const BEGIN_WITHIN = 300_000;

/** Starts a flood in its own process. Resolves once it runs. */
export async function flooding(scope: Scope, settings: FloodSettings) {
  const child = scope.use(new Child('rig/load/main.ts'));
  const begun = await child.ask<FloodDone>({ load: 'flood', ...settings } satisfies Load, BEGIN_WITHIN);
  return {
    begun,
    done: () => child.ask<FloodDone>('report'),
    end: () => child[Symbol.asyncDispose](),
  };
}
