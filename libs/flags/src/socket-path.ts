import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

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

export interface Surroundings {
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
