import { HOLDER, SERVER } from '../recipe.ts';
import { putAnp } from '../upstream.ts';
import type { Fault } from './fault.ts';
import { serverChanged, serverKilled } from './faults.ts';

let putBack = async () => {};

/** What callers notice with ANP's server in the place of ours, without what holds its socket. The agents stay ours. */
export const BESIDE_ANP: readonly Fault[] = [serverChanged, serverKilled].map(({ name, commit }) => ({
  name: `${name}, of ANP`,
  mayFail: /./,
  mayCut: true,
  commit,
  comparison: {
    begin: async () => {
      putBack = await putAnp(SERVER, HOLDER);
    },
    end: () => putBack(),
  },
}));
