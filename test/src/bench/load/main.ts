// Runs one work on one front, in its own process, so that the load's processor time is not the plane's. Settings come as the first
// message, the result goes back as the last.

import { Control } from '../../rig/load/control.ts';
import type { Result, Settings } from '../../rig/load/messages.ts';
import { Bench } from './bench.ts';
import { works } from './works.ts';

async function run(settings: Settings): Promise<Result> {
  const control = await Control.connect(settings.destinationPort);
  const groups = { ...settings.groups, client: [process.pid] };
  const bench = new Bench({ ...settings, groups }, control);
  const figures = await works[settings.work](bench);
  control.end();
  return { figures, errors: bench.tunnels.errors };
}

process.once('message', (settings) => {
  run(settings as Settings).then(
    (result) => process.send?.(result, () => process.exit(0)),
    (error: Error) =>
      process.send?.({ figures: {}, errors: { [error.stack ?? error.message]: 1 } }, () => process.exit(1)),
  );
});
process.once('disconnect', () => process.exit(0));
