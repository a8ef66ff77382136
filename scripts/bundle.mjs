// The second half of `npm run build`: bundles each program into few files, from the output of tsc. Takes projects, as `tsc -b` does,
// and `--image` if the bundles are all that will be left of the build.
import { parseArgs } from 'node:util';
import { bundle } from './lib/bundle.mjs';

const { values, positionals } = parseArgs({ options: { image: { type: 'boolean' } }, allowPositionals: true });
await bundle(positionals, values);
