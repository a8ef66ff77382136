import { accessSync, closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { CertificatePool, checkedPem, readNamedFile, reasonOf, UnusablePem } from '@isthmus/runtime';
import { FLAGS } from './defaults.ts';
import { FlagError } from './flag.ts';

/** Returns the text of a file that a flag names. @throws FlagError if it cannot be read */
export function readFlagFile(flag: string, path: string): string {
  try {
    return readNamedFile(path).toString();
  } catch (error) {
    throw new FlagError(flag, `cannot read ${path}: ${reasonOf(error)}${lackOfKey(path)}`);
  }
}

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
  const more = keys.length > FLAGS.keysShown ? ` and ${keys.length - FLAGS.keysShown} more` : '';
  const has = keys.length === 0 ? 'nothing' : keys.slice(0, FLAGS.keysShown).join(', ') + more;
  return `, and what is mounted at ${directory} has ${has}: add the key ${basename(path)} to the Secret or ConfigMap`;
}

/** Temporary errors: a full disk, too many open files. They do not prevent a start. */
const PASSING = new Set(['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE']);

/** Checks that a file can be appended to or created. A pipe would make the process wait for its reader. */
export function checkAppendable(flag: string, path: string): void {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NONBLOCK } = constants;
  try {
    const fd = openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0o640);
    const pipe = fstatSync(fd).isFIFO();
    closeSync(fd);
    if (pipe) throw new Error('it is a pipe (standard output is -)');
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (PASSING.has(code)) return;
    throw new FlagError(
      flag,
      `cannot write ${path}: ${code === 'ENOENT' ? 'there is no such directory' : reasonOf(error)}`,
    );
  }
}

/**
 * Checks a certificate, its key and a file of authorities, as far as they are set: they are readable, well formed, and the key is the
 * certificate's. The certificate's file may hold a chain that starts with the program's own certificate.
 */
export function checkTlsFiles<Flag extends string>(flags: Files<Flag>, cert: Flag, key: Flag, ca: Flag): void {
  checkTogether(flags, cert, key);
  const text = (flag: Flag) => (flags[flag] === '' ? undefined : readFlagFile(flag, flags[flag]));
  try {
    checkedPem({ cert: text(cert), key: text(key), ca: text(ca) });
  } catch (error) {
    if (!(error instanceof UnusablePem)) throw error;
    const flag = { cert, key, ca }[error.of];
    throw new FlagError(flag, `${flags[flag]}: ${error.message}`);
  }
}

/** Checks that both of two flags are set, or neither. */
export function checkTogether<Flag extends string>(flags: Files<Flag>, one: Flag, other: Flag): void {
  const [missing, given] = flags[one] === '' ? [one, other] : [other, one];
  if (flags[missing] === '' && flags[given] !== '') throw new FlagError(missing, `must be set when --${given} is`);
}

type Files<Flag extends string> = Readonly<Record<Flag, string>>;

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

/** Blocks of other types, and those that are damaged, are skipped, and a malformed certificate refuses all, as in upstream's loader. */
function poolIn(flag: string, path: string): CertificatePool {
  const text = readFlagFile(flag, path);
  try {
    return CertificatePool.authorities(text);
  } catch (error) {
    throw new FlagError(flag, `${path}: ${(error as Error).message}`);
  }
}

/** sun_path has 108 bytes, and the last one terminates the string (unix(7)). */
const LONGEST_PATH = 107;

/** The socket is bound in the same directory first, under a name of so many bytes (libs/runtime/src/bind.ts), `/` included. */
const FIRST_NAME = 6;

/** Returns why nothing can listen on a unix socket at a path; undefined if it can. */
export function faultOfSocketPath(path: string): string | undefined {
  const bytes = Buffer.byteLength(path);
  if (bytes > LONGEST_PATH)
    return `the path has ${bytes} bytes; the path of a unix socket may have at most ${LONGEST_PATH}`;
  const parent = dirname(path);
  const [length, most] = [Buffer.byteLength(parent), LONGEST_PATH - FIRST_NAME];
  if (length > most) {
    return `its directory's path has ${length} bytes, and may have ${most}: a temporary name in it must fit, choose a shorter one`;
  }
  const fault = faultOfDirectory(parent) ?? deniedIn(parent);
  if (fault !== undefined) return fault;
  const there = statSync(path, { throwIfNoEntry: false });
  return there && !there.isSocket() ? `${path} exists and is not a socket` : undefined;
}

/** Returns why a path is no directory; undefined if it is one. */
export function faultOfDirectory(path: string): string | undefined {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ? undefined : `there is no directory ${path}`;
}

function deniedIn(directory: string): string | undefined {
  try {
    accessSync(directory, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EROFS') return `the directory ${directory} is mounted read-only`;
    return `user ${process.getuid?.()} may not make files in the directory ${directory}: chown it to that user`;
  }
}

const KUBELETS_FILES: readonly string[] = ['/etc/hosts', '/dev/termination-log'];

interface Surroundings {
  /** Whether the kubelet started this process. */
  readonly inPod: boolean;
  /** The text of /proc/self/mountinfo (proc_pid_mountinfo(5)). */
  readonly mounts: string;
}

/**
 * Returns why callers in other containers do not see a socket: its directory is in the container's own file system, not in a volume.
 * Undefined outside of a pod, or if it cannot be known.
 */
export function hiddenSocket(path: string, { inPod, mounts } = surroundings()): string | undefined {
  if (!inPod) return undefined;
  const directory = dirname(resolve(path));
  const around = mounts
    .split('\n')
    .map((line) => ({ point: unescaped(line.split(' ')[4] ?? ''), type: / - (\S+) /.exec(line)?.[1] ?? '' }))
    .filter(({ point }) => point === '/' || directory === point || directory.startsWith(`${point}/`));
  // Of two mounts at one point, the later one hides the other.
  const nearest = around.reduce((best, each) => (each.point.length >= best.point.length ? each : best), {
    point: '',
    type: '',
  });
  if (nearest.point !== '/' || !/^(fuse-)?overlay(fs)?$/.test(nearest.type)) return undefined;
  return `the directory ${directory} is in this container's own file system, so no API server finds the socket: mount the directory that the API server mounts`;
}

function surroundings(): Surroundings {
  let mounts = '';
  try {
    mounts = readFileSync('/proc/self/mountinfo', 'utf8');
  } catch {
    // Not Linux.
  }
  return { inPod: startedByKubelet(process.env, mounts), mounts };
}

/**
 * The kubelet names the API server to every container, except to a static pod's that starts before the API server. But it mounts files of its
 * own, from the pod's directory.
 */
export function startedByKubelet(env: Readonly<Record<string, string | undefined>>, mounts: string): boolean {
  if (env.KUBERNETES_SERVICE_HOST !== undefined) return true;
  return mounts.split('\n').some((line) => {
    const [, , , source = '', point = ''] = line.split(' ');
    return KUBELETS_FILES.includes(point) && /\/pods\/[^/]+\//.test(source);
  });
}

/** A space in a path is written as `\\040`. */
function unescaped(point: string): string {
  return point.replaceAll(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8)));
}
