// npm run simulate: cuts simulated tunnels that outlive what carries them, in random schedules (docs/RESUME.md).
import { commandLine, conclude, misused } from '../test/src/rig/command.ts';
import { ensureInstalled } from './lib/ready.mjs';

const { values } = commandLine(
  'simulate',
  {
    schedules: { type: 'string', default: '1000000', value: 'N', says: 'how many (default 1,000,000)' },
    seed: {
      type: 'string',
      default: '1',
      value: 'N',
      says: 'the seed of the first (default 1); each next one is higher by one',
    },
  },
  'A failure names its seed, and `npm run simulate -- --schedules 1 --seed N` repeats it.',
);
const [schedules, seed] = [Number(values.schedules), Number(values.seed)];
if (![schedules, seed, 2 ** 31 - 1 - schedules - seed].every((each) => Number.isInteger(each) && each > 0))
  misused('--schedules and --seed need whole numbers from 1, whose sum is below 2^31 - 1.');
const MOST_SHOWN = 10;
const SAY_EVERY = 50_000;

await ensureInstalled();
const { simulate } = await import('../libs/tunnel/src/testing/simulate.ts');
let failed = 0;
const total = { attaches: 0, cuts: 0, gatewaysKilled: 0 };
for (let done = 0; done < schedules; done++) {
  const { faults, ...counts } = simulate(seed + done);
  for (const what of Object.keys(total)) total[what] += counts[what];
  if (faults.length > 0 && ++failed <= MOST_SHOWN) console.log(`FAILED seed ${seed + done}: ${faults.join('; ')}`);
  if ((done + 1) % SAY_EVERY === 0) console.log(`${done + 1} of ${schedules} schedules, ${failed} failed`);
}
console.log(`${total.cuts} channels cut, ${total.gatewaysKilled} gateways killed, ${total.attaches} attaches`);
conclude(schedules - failed, failed);
