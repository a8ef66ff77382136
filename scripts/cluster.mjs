// npm run cluster: a real Kubernetes cluster on this machine, with Isthmus from k8s/. `npm run cluster -- --help` shows the options.
import { clusterOptions, USAGE } from '../test/src/cluster/options.ts';
import { ensureInstalled } from './lib/ready.mjs';
import { installPackages } from './lib/tools.mjs';

const options = read();
if (options?.help) console.log(USAGE);
else if (options) process.exitCode = await run();

function read() {
  try {
    return clusterOptions(process.argv.slice(2));
  } catch (error) {
    console.error(`${error.message}\n\n${USAGE}`);
    process.exitCode = 2;
    return undefined;
  }
}

async function run() {
  await ensureInstalled();
  const { missingPackages, unable } = await import('../test/src/cluster/machine.ts');
  // With --if-possible, no cluster may come of it.
  if (!options['if-possible'] && !unable(options.build)) await installPackages(missingPackages(options.build));
  const { main } = await import('../test/src/cluster/main.ts');
  return main(options);
}
