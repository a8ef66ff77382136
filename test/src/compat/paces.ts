import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { destination, dial, type Edge, edgesOf } from '../edges/rig.ts';
import { Digest, type Front, type Scope, source, until } from '../harness/index.ts';

export const MIB = 1 << 20;

/** How a reader takes its bytes. */
export interface Pace {
  readonly name: string;
  /** Bytes a second; unset: as fast as they come. */
  readonly rate?: number;
  /** Takes so many bytes, rests so long, and so on. */
  readonly burst?: { readonly bytes: number; readonly restMs: number };
}

export const DIRECTIONS = ['download', 'upload'] as const;

/** One transfer: which way in, which direction, at which pace its reader takes it. */
export interface Row {
  readonly edge: Edge;
  readonly direction: (typeof DIRECTIONS)[number];
  readonly pace: Pace;
}

/** The two protocols, on unix sockets. */
export function bothProtocols(front: Front): Edge[] {
  return edgesOf(front).filter(({ via }) => 'uds' in via);
}

export function rowsOf(edges: readonly Edge[], paces: readonly Pace[]): Row[] {
  return edges.flatMap((edge) => DIRECTIONS.flatMap((direction) => paces.map((pace) => ({ edge, direction, pace }))));
}

export interface Transfer {
  readonly row: string;
  /** What arrived, as `bytes sha256`, and what was sent. */
  readonly arrived: string;
  readonly sent: string;
  readonly error?: string;
}

export interface TransferOptions {
  readonly bytes: number;
  /** In milliseconds. */
  readonly deadline: number;
}

/** Moves bytes through a tunnel of its own. The caller speaks first, and counts decide the end: see ANP's CONNECT. */
export async function transfer(scope: Scope, row: Row, options: TransferOptions): Promise<Transfer> {
  const { edge, direction, pace } = row;
  const name = `${edge.name}, ${direction}, ${pace.name}`;
  const run = direction === 'download' ? download : upload;
  const progress = { bytes: 0 };
  try {
    return { row: name, ...(await run(scope, row, options, progress)) };
  } catch (error) {
    return { row: name, arrived: `${progress.bytes} of ${options.bytes} bytes`, sent: '', error: `${error}` };
  }
}

type Outcome = Pick<Transfer, 'arrived' | 'sent'>;

async function download(
  scope: Scope,
  { edge, pace }: Row,
  { bytes, deadline }: TransferOptions,
  progress: { bytes: number },
): Promise<Outcome> {
  const target = await source(scope, bytes, { asked: true });
  const tunnel = await dial(scope, edge, target.authority);
  const digest = new Digest();
  read(tunnel, pace, (chunk) => {
    digest.update(chunk);
    progress.bytes = digest.bytes;
  });
  tunnel.write('?');
  await arrived(tunnel, () => digest.bytes >= bytes, deadline);
  tunnel.end();
  return { arrived: `${digest}`, sent: `${bytes} ${target.sha256}` };
}

async function upload(
  scope: Scope,
  { edge, pace }: Row,
  { bytes, deadline }: TransferOptions,
  progress: { bytes: number },
): Promise<Outcome> {
  const target = await destination(scope, (socket) => {
    const digest = new Digest();
    read(socket, pace, (chunk) => {
      digest.update(chunk);
      progress.bytes = digest.bytes;
      if (digest.bytes >= bytes) socket.end(`${digest}\n`);
    });
  });
  const tunnel = await dial(scope, edge, target.authority);
  let answer = '';
  tunnel.on('data', (chunk: Buffer) => {
    answer += chunk.toString('latin1');
  });
  tunnel.resume();
  const sent = new Digest();
  offer(tunnel, bytes, sent);
  await arrived(tunnel, () => answer.endsWith('\n'), deadline);
  tunnel.end();
  return { arrived: answer.trim(), sent: `${sent}` };
}

function arrived(tunnel: Duplex, whole: () => boolean, deadline: number): Promise<true> {
  return until(whole, {
    deadline,
    every: 50,
    what: 'all bytes',
    hopeless: () => (tunnel.destroyed && !whole() ? `the tunnel was cut: ${tunnel.errored?.message}` : undefined),
  });
}

/** Writes as fast as the tunnel takes it. */
function offer(tunnel: Duplex, bytes: number, sent: Digest): void {
  const chunk = randomBytes(MIB / 4);
  const write = () => {
    while (sent.bytes < bytes && !tunnel.destroyed) {
      const part = chunk.subarray(0, bytes - sent.bytes);
      sent.update(part);
      if (!tunnel.write(part)) return void tunnel.once('drain', write);
    }
  };
  write();
}

/** Takes bytes at a pace, pausing the stream between. */
export function read(stream: Duplex, { rate, burst }: Pace, take: (chunk: Buffer) => void): void {
  const start = performance.now();
  let taken = 0;
  let inBurst = 0;
  let timer: NodeJS.Timeout | undefined;
  const rest = (ms: number) => {
    stream.pause();
    clearTimeout(timer);
    timer = setTimeout(() => stream.resume(), ms);
  };
  stream.on('data', (chunk: Buffer) => {
    take(chunk);
    taken += chunk.length;
    inBurst += chunk.length;
    if (burst && inBurst >= burst.bytes) {
      inBurst = 0;
      rest(burst.restMs);
    }
    const ahead = rate === undefined ? 0 : (taken / rate) * 1000 - (performance.now() - start);
    if (ahead > 0) rest(ahead);
  });
  stream.resume().once('close', () => clearTimeout(timer));
}
