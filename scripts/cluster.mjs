// npm run cluster: a real Kubernetes cluster on this machine, with Isthmus from k8s/. `npm run cluster -- --help` shows the options.
import { installClusterTools } from './lib/cluster-tools.mjs';
import { ensureReady } from './lib/ready.mjs';

await ensureReady();
// Where it may not be possible, nothing is installed to find that out.
if (!process.argv.includes('--if-possible')) await installClusterTools();
await import('../test/dist/cluster/main.js');
