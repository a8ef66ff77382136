// npm run build: bundles each program from its sources into dist/programs, as the image and the npm package have it.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { bundlePrograms } from './lib/bundle.mjs';
import { ROOT } from './lib/workspace.mjs';

const to = join(ROOT, 'dist', 'programs');
rmSync(to, { recursive: true, force: true });
await bundlePrograms(to);
