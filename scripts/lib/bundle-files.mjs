import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { basename, join, relative } from 'node:path';

/**
 * How many bundles of a program are kept: the current one, and the ones before it. A running program loads parts of its own long after
 * it started, so they outlive four builds that changed it.
 */
const KEPT = 5;

/** The file that `launch` in libs/service reads. */
const CURRENT = 'current.json';

/**
 * Makes files a program's current bundle. They go into a directory named after their content, which appears only once it is complete.
 * Then its name is written to CURRENT. So a program that starts meanwhile finds either the old bundle or the new one, even if this is
 * interrupted anywhere or runs twice at once.
 * @param bundles the directory of all bundles of the program
 * @param madeOf the input files that can become newer than the bundle
 */
export function putInPlace(files, bundles, madeOf) {
  const directory = nameOf(files);
  const draft = join(bundles, `draft-${randomUUID()}`);
  mkdirSync(draft, { recursive: true });
  for (const { path, contents } of files) writeFileSync(join(draft, basename(path)), contents);
  nameDraft(draft, join(bundles, directory));
  const entries = madeOf.map(({ file, mtimeMs, size }) => [relative(bundles, file), { mtimeMs, size }]);
  const current = join(bundles, CURRENT);
  writeFileSync(`${current}.${process.pid}`, JSON.stringify({ directory, madeOf: Object.fromEntries(entries) }));
  renameSync(`${current}.${process.pid}`, current);
  removeOldest(bundles);
}

function nameOf(files) {
  const hash = createHash('sha256');
  for (const { path, contents } of files) hash.update(`${basename(path)}\0`).update(contents);
  return hash.digest('hex').slice(0, 16);
}

function nameDraft(draft, directory) {
  try {
    renameSync(draft, directory);
  } catch (error) {
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    // An earlier build made the same bundle.
    rmSync(draft, { recursive: true });
  }
  const now = new Date();
  utimesSync(directory, now, now);
}

/** Also removes what interrupted builds left. */
function removeOldest(bundles) {
  const others = readdirSync(bundles).filter((name) => name !== CURRENT);
  const dated = others.map((name) => {
    const path = join(bundles, name);
    return { path, at: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0 };
  });
  const old = dated.sort((a, b) => b.at - a.at).slice(KEPT);
  for (const { path } of old) rmSync(path, { recursive: true, force: true });
}
