import { command } from './command.mjs';

const TAR_MS = 10 * 60_000;
/** Nothing of the machine, of its users or of the time of day. */
const SAME = ['--sort=name', '--mtime=@0', '--owner=0', '--group=0', '--numeric-owner', '--mode=u=rwX,go=rX'];

/**
 * Puts what is in a directory into a tar archive. Equal files make equal archives.
 * @param compress whether it is compressed, by gzip
 */
export async function archive(file, directory, { compress = false } = {}) {
  const compression = compress ? ['--use-compress-program=gzip --no-name --best'] : [];
  await tar('--create', ...compression, ...SAME, `--file=${file}`, `--directory=${directory}`, '.');
}

export async function unpack(file, directory) {
  await tar('--extract', `--file=${file}`, `--directory=${directory}`);
}

async function tar(...args) {
  const { status, output } = await command(['tar', ...args], { timeout: TAR_MS });
  if (status !== 0) throw new Error(`tar ${args.join(' ')}: ${output}`);
}
