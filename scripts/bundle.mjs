// The second half of `npm run build`: each program in few files, out of what tsc has built.
import { bundle } from './lib/bundle.mjs';

await bundle();
