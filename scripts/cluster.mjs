// npm run cluster: a real Kubernetes cluster on this machine, with Isthmus from k8s/. `npm run cluster -- --help` shows the options.
import { installClusterTools } from './lib/cluster-tools.mjs';
import { ensureReady } from './lib/ready.mjs';

await ensureReady();
await installClusterTools(process.argv.slice(2), await import('../test/dist/cluster/machine.js'));
await import('../test/dist/cluster/main.js');
