// npm run cluster: a real Kubernetes cluster on this machine, with Isthmus from k8s/. `npm run cluster -- --help` shows the options.
import { clusterOptions } from '../test/src/cluster/options.ts';
import { ensureInstalled } from './lib/ready.mjs';
import { installPackages } from './lib/tools.mjs';

const options = clusterOptions();
await ensureInstalled();
const { missingPackages, unable } = await import('../test/src/cluster/machine.ts');
// With --if-possible, no cluster may come of it.
if (!options['if-possible'] && !unable(options.build)) await installPackages(missingPackages(options.build));
const { main } = await import('../test/src/cluster/main.ts');
process.exitCode = await main(options);
