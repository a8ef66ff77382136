// npm run simulate: cuts simulated tunnels that outlive what carries them, in random schedules (docs/RESUME.md).
import { parseArgs } from 'node:util';
import { closingLine } from './lib/counts.mjs';
import { ensureInstalled } from './lib/ready.mjs';

const USAGE = `npm run simulate [-- OPTIONS]
  --schedules N  how many (default 1,000,000)
  --seed N       the seed of the first (default 1); each next one is higher by one
A failure names its seed, and \`npm run simulate -- --schedules 1 --seed N\` repeats it.
`;
const MOST_SHOWN = 10;
const SAY_EVERY = 50_000;

const { schedules, seed } = read();
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
console.log(closingLine({ passed: schedules - failed, failed, skipped: 0 }));
process.exitCode = failed === 0 ? 0 : 1;

/** Ends the process, with how to use it, unless both are whole numbers. */
function read() {
  const options = {
    ...{ schedules: { type: 'string', default: '1000000' }, seed: { type: 'string', default: '1' } },
    help: { type: 'boolean' },
  };
  try {
    const { values } = parseArgs({ options });
    if (values.help) {
      console.log(USAGE);
      process.exit(0);
    }
    const [first, count] = [Number(values.seed), Number(values.schedules)];
    const fit = Number.isInteger(first) && first > 0 && Number.isInteger(count) && count > 0;
    if (!fit || first + count >= 2 ** 31 - 1) throw new Error('give whole numbers from 1, whose sum is below 2^31 - 1');
    return { seed: first, schedules: count };
  } catch (error) {
    console.error(`${error.message}\n${USAGE}`);
    process.exit(2);
  }
}
