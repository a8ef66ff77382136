// Kills its program where it changes files: KILLED_AT is `before N CALL PATH`, `after N CALL PATH` or `within N CALL PATH`, with patterns of the
// call's name and of the path that it makes or removes, at the Nth such call. Within a write, half of it is written.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const [, when, nth, call, path] = /^(before|after|within) (\d+) (\S+) (.*)$/.exec(process.env.KILLED_AT ?? '') ?? [];
/** By call: which of its arguments is the path. */
const CALLS = { mkdirSync: 0, writeFileSync: 0, renameSync: 1, rmSync: 0 };
let calls = 0;

for (const [name, of] of Object.entries(CALLS)) {
  const real = fs[name];
  fs[name] = (...args) => {
    const isIt = new RegExp(call).test(name) && new RegExp(path).test(args[of]) && ++calls === Number(nth);
    if (isIt && when === 'within' && name === 'writeFileSync') args[1] = args[1].slice(0, args[1].length / 2);
    if (isIt && when === 'before') process.kill(process.pid, 'SIGKILL');
    const result = real(...args);
    if (isIt) process.kill(process.pid, 'SIGKILL');
    return result;
  };
}
syncBuiltinESMExports();
