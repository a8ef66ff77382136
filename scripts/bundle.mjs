// The second half of `npm run build`: each program in few files, out of what tsc has built. Takes projects, as `tsc -b` does, and
// `--image` where the bundles are all that will be left of the build.
import { parseArgs } from 'node:util';
import { bundle } from './lib/bundle.mjs';

const { values, positionals } = parseArgs({ options: { image: { type: 'boolean' } }, allowPositionals: true });
await bundle(positionals, values);
