import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { pack } from 'tar-stream';
import { messageOf, usage } from '../exit.ts';
import { scrubbed } from './scrub.ts';

/** Texts by their name in the archive. */
export type Texts = ReadonlyMap<string, string>;

/**
 * Writes texts as a tar.gz that only its owner may read, with everything removed that looks like a secret. @returns its size in bytes
 * @throws Failure if the file exists or cannot be written
 */
export async function writeArchive(path: string, texts: Texts, now = new Date()): Promise<number> {
  const file = createWriteStream(path, { flags: 'wx', mode: 0o600 });
  try {
    await once(file, 'open');
  } catch (error) {
    throw usage(`cannot write ${path}: ${messageOf(error)}`);
  }
  try {
    const tar = pack();
    for (const [name, text] of texts) tar.entry({ name, mtime: now, mode: 0o600 }, scrubbed(text));
    tar.finalize();
    await pipeline(tar, createGzip(), file);
    return file.bytesWritten;
  } catch (error) {
    await rm(path, { force: true });
    throw usage(`cannot write ${path}: ${messageOf(error)}`);
  }
}
