// Installs and builds what is missing, and is quick where nothing is. Like all that it imports, it needs nothing but
// node:*, because it runs before anything is installed.
import { ensureReady } from './lib/ready.mjs';

await ensureReady();
