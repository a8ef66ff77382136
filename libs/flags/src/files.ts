import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { closeSync, constants, openSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { type Certificate, CertificatePool } from '@isthmus/runtime';
import { FlagError } from './error.ts';

/** Returns the text of a file that a flag names. @throws FlagError if it cannot be read */
export function readNamedFile(flag: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new FlagError(flag, `cannot read ${path}: ${reason(error)}${lackOfKey(path)}`);
  }
}

/** How many keys of a Secret or ConfigMap an error shows. */
const MOST_SHOWN = 10;

/** What a mounted Secret or ConfigMap has in place of a file that is not there. cert-manager, for one, leaves `ca.crt` out for some issuers. */
function lackOfKey(path: string): string {
  const directory = dirname(path);
  let names: string[];
  try {
    names = readdirSync(directory);
  } catch {
    return '';
  }
  // The kubelet's own link, in each volume that it writes.
  if (!names.includes('..data') || names.includes(basename(path))) return '';
  const keys = names.filter((name) => !name.startsWith('..')).sort();
  const more = keys.length > MOST_SHOWN ? ` and ${keys.length - MOST_SHOWN} more` : '';
  const has = keys.length === 0 ? 'nothing' : keys.slice(0, MOST_SHOWN).join(', ') + more;
  return `, and what is mounted at ${directory} has ${has}: add the key ${basename(path)} to the Secret or ConfigMap`;
}

/** Temporary errors: a full disk, too many open files, a pipe without a reader. They do not prevent a start. */
const PASSING = new Set(['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE', 'ENXIO']);

/** Checks that a file can be appended to or created. */
export function checkAppendable(flag: string, path: string): void {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NONBLOCK } = constants;
  try {
    closeSync(openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0o640));
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (PASSING.has(code)) return;
    throw new FlagError(
      flag,
      `cannot write ${path}: ${code === 'ENOENT' ? 'there is no such directory' : reason(error)}`,
    );
  }
}

/**
 * Checks a certificate and its key: both or neither are set, they are readable, well formed, and match. The certificate's file may hold
 * a chain that starts with the program's own certificate.
 */
export function checkKeyPair(certFlag: string, cert: string, keyFlag: string, key: string): void {
  if (cert === '' && key === '') return;
  if (cert === '') throw new FlagError(certFlag, `must be set when --${keyFlag} is`);
  if (key === '') throw new FlagError(keyFlag, `must be set when --${certFlag} is`);
  const leaf = leafIn(certFlag, cert);
  const privateKey = privateKeyIn(keyFlag, key);
  if (!leaf || !new X509Certificate(leaf.raw).checkPrivateKey(privateKey)) {
    throw new FlagError(keyFlag, `the key in ${key} does not match the certificate in ${cert}`);
  }
}

/** Checks a file of authorities, if set. */
export function checkAuthorities(flag: string, path: string): void {
  if (path !== '') poolIn(flag, path);
}

/** An authority that two files share, by its subject; undefined where there is none, or where a file is not named. */
export function sharedAuthority(
  one: readonly [flag: string, path: string],
  other: readonly [flag: string, path: string],
): string | undefined {
  if (one[1] === '' || other[1] === '') return undefined;
  // Two certificates of one authority, such as a renewed one, have its key in common.
  const keys = new Set(poolIn(...one).all.map(({ publicKey }) => publicKey.toString('base64')));
  return poolIn(...other).all.find(({ publicKey }) => keys.has(publicKey.toString('base64')))?.subjectText;
}

/** Blocks of other types, and those that cannot be read, are skipped, as in upstream's loader. */
function poolIn(flag: string, path: string): CertificatePool {
  const pool = CertificatePool.of(readNamedFile(flag, path));
  if (pool.all.length > 0) return pool;
  throw new FlagError(flag, [`there is no certificate (PEM) in ${path}`, ...pool.skipped].join(': '));
}

/** What this program shows must be whole. */
function leafIn(flag: string, path: string): Certificate | undefined {
  const { all, skipped } = poolIn(flag, path);
  if (skipped[0] !== undefined) throw new FlagError(flag, `${path}: ${skipped[0]}`);
  return all[0];
}

function privateKeyIn(flag: string, path: string): KeyObject {
  const text = readNamedFile(flag, path);
  if (/^-----BEGIN ENCRYPTED|^Proc-Type: 4,ENCRYPTED/m.test(text)) {
    throw new FlagError(flag, `the key in ${path} is encrypted: remove its passphrase`);
  }
  try {
    return createPrivateKey(text);
  } catch (error) {
    throw new FlagError(flag, `there is no usable private key (PEM) in ${path}: ${reason(error)}`);
  }
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
  ENOTDIR: 'a part of its path is not a directory',
  EROFS: 'the file system is read-only',
};

function reason(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return REASONS[code ?? ''] ?? message.replaceAll(/\s+/g, ' ');
}
