// A run of the bench in a process and a network of its own.
import { interrupted, say } from '../rig/command.ts';
import { type Plan, runAll } from './run.ts';

process.once('message', async (plan: Plan) => {
  const runs = await runAll(plan, say, interrupted());
  if (process.connected) process.send?.(runs, () => process.exit(0));
});
