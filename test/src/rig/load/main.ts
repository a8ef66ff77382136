// The process of a load, so that its processor time is not the plane's. Its first message says what to do. It answers each with what was done.
import { Callers } from './calls.ts';
import { Flood } from './flood.ts';
import type { Load, Result } from './messages.ts';
import { carriedOver } from './path.ts';
import { worked } from './works.ts';

/** A load that goes on. */
interface Running {
  report(): object;
  stop?(): Promise<void>;
}

async function begin(load: Load): Promise<Running> {
  if (load.load === 'calls') return new Callers(load);
  if (load.load === 'flood') return await Flood.start(load);
  const result = await (load.load === 'path' ? carriedOver(load) : worked(load)).catch(failed);
  return { report: () => result };
}

function failed({ message, stack = message }: Error): Result {
  return { figures: {}, errors: { [stack]: 1 } };
}

let running: Running | undefined;

process.on('message', async (message: Load | 'report' | 'stop') => {
  if (typeof message === 'object') running = await begin(message);
  else if (message === 'stop') await running?.stop?.();
  process.send?.(running?.report());
});
process.once('disconnect', () => process.exit(0));
