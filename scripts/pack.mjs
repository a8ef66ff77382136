// npm run pack -- libs/wire [DIRECTORY]: packs a library that stands alone for npm, into a directory (default: the current one).
import { resolve } from 'node:path';
import { packAlone } from './lib/npm-packages.mjs';
import { inScratch } from './lib/workspace.mjs';

const [path, to = '.'] = process.argv.slice(2);
console.log(await inScratch((scratch) => packAlone(path, { to: resolve(to), scratch })));
