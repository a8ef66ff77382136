// Kills its program where it renames: KILLED_AT is `before N PATH` or `after N PATH`, with a pattern of the new path, at the Nth such rename.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const [, when, nth, path] = /^(before|after) (\d+) (.*)$/.exec(process.env.KILLED_AT ?? '') ?? [];
const { renameSync } = fs;
let renames = 0;

fs.renameSync = (from, to) => {
  const isIt = new RegExp(path).test(to) && ++renames === Number(nth);
  if (isIt && when === 'before') process.kill(process.pid, 'SIGKILL');
  renameSync(from, to);
  if (isIt) process.kill(process.pid, 'SIGKILL');
};
syncBuiltinESMExports();
