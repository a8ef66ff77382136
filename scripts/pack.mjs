// npm run pack -- libs/wire [DIRECTORY]: packs a library that stands alone for npm, into a directory (default: the current one).
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { packAlone } from './lib/npm-packages.mjs';

const [path, to = '.'] = process.argv.slice(2);
const scratch = mkdtempSync(join(tmpdir(), 'isthmus-pack-'));
try {
  console.log(await packAlone(path, { to: resolve(to), scratch }));
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
