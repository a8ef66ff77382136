// Installs and builds what is missing, and is quick if nothing is. Like everything that it imports, it needs only node:*, because it
// runs before anything is installed.
import { ensureReady } from './lib/ready.mjs';

await ensureReady();
