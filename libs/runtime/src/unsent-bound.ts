import type { Socket } from 'node:net';
import { RUNTIME } from './defaults.ts';
import { type Functions, openFfi } from './ffi.ts';
import { bufferSizes } from './resources.ts';

/** Numbers of Linux (asm-generic/socket.h, linux/in.h, linux/tcp.h). */
const [SOL_SOCKET, SO_SNDBUF] = [1, 7];
const [IPPROTO_TCP, TCP_INFO, TCP_NOTSENT_LOWAT] = [6, 11, 25];
/** Where `struct tcp_info` has the rate at which the path delivers, in bytes per second, and where that ends. */
const [RATE_AT, RATE_END] = [160, 168];
/** The option is a number of 32 bits. */
const MOST = 2 ** 30;

const LIBC = {
  getsockopt: { arguments: ['int32', 'int32', 'int32', 'buffer', 'buffer'], return: 'int32' },
  setsockopt: { arguments: ['int32', 'int32', 'int32', 'buffer', 'uint32'], return: 'int32' },
} as const;

let libc: Functions<keyof typeof LIBC> | false | undefined;

function openLibc(): Functions<keyof typeof LIBC> | false {
  try {
    return (process.platform === 'linux' && openFfi()?.library.getFunctions(LIBC)) || false;
  } catch {
    return false;
  }
}

const info = Buffer.alloc(RATE_END);
const number = Buffer.alloc(4);

/** @returns -1 for one that is closed. Not documented: each handle of a socket has it */
function descriptorOf(socket: Socket): number {
  return (socket as { _handle?: { fd?: number } | null })._handle?.fd ?? -1;
}

/**
 * Lets the kernel take only so much for the peer of a unix socket. By default it takes 208 KiB, which count against the memory limit of this process:
 * 104 MiB for 500 callers that read nothing. Without `node:ffi`, it is the kernel's own matter.
 * @param bytes the kernel allows twice as many, with what it needs for them
 */
export function boundUnixSocket(socket: Socket, bytes: number): void {
  libc ??= openLibc();
  const fd = descriptorOf(socket);
  if (!libc || fd < 0) return;
  number.writeInt32LE(bytes);
  libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, number, 4);
}

/** The same for this process. Unset if its memory has no limit, or a large one. */
export const boundCaller =
  bufferSizes.stream < RUNTIME.streamBytes
    ? (socket: Socket) => boundUnixSocket(socket, bufferSizes.stream)
    : undefined;

/**
 * The bytes of a TCP socket that the kernel has accepted and not sent. It accepts up to 4 MB, and on a thin path the next byte waits for all of
 * them. So the kernel is told, through `node:ffi`, to keep what the path delivers in `unsentMs`, and the rest waits here, where small writes
 * overtake bulk. What has been sent is TCP's business: nothing here holds its window down.
 */
export class UnsentBound {
  /** How many bytes shall wait at most, in the kernel and in the socket's stream each. */
  bytes = 0;
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** @returns undefined for what is no TCP socket of Linux, or without `node:ffi`: then the kernel decides, as for any program */
  static of(socket: Socket): UnsentBound | undefined {
    const bound = new UnsentBound(socket);
    return bound.follow() ? bound : undefined;
  }

  /** Asks the kernel how fast the path delivers. @returns whether it has answered */
  follow(): boolean {
    libc ??= openLibc();
    const fd = descriptorOf(this.#socket);
    if (!libc || fd < 0) return false;
    number.writeInt32LE(RATE_END);
    if (libc.getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, number) !== 0 || number.readInt32LE() < RATE_END) return false;
    const { unsentLeastBytes, unsentMs } = RUNTIME;
    const delivered = Math.floor((Number(info.readBigUInt64LE(RATE_AT)) * unsentMs) / 1000);
    this.bytes = Math.min(MOST, Math.max(unsentLeastBytes, delivered));
    number.writeInt32LE(this.bytes);
    return libc.setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, number, 4) === 0;
  }
}
