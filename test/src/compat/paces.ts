import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { destination, dial, type Edge, edgesOf } from '../edges/rig.ts';
import { Digest, type Front, type Scope, source, until } from '../harness/index.ts';

export const MIB = 1 << 20;

/** How fast a reader reads. */
export interface Pace {
  readonly name: string;
  /** Bytes a second. Unset means as fast as they arrive. */
  readonly rate?: number;
  /** Reads this many bytes, pauses this long, and repeats. */
  readonly burst?: { readonly bytes: number; readonly restMs: number };
}

export const DIRECTIONS = ['download', 'upload'] as const;

/** One transfer: its edge, its direction, and the pace of its reader. */
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

/**
 * Moves bytes through a tunnel for each row, all at once. The caller sends first, and each transfer ends at its byte count: see ANP's
 * CONNECT.
 */
export async function transferAll(scope: Scope, rows: readonly Row[], options: TransferOptions): Promise<Transfer[]> {
  const from = await source(scope, options.bytes, { asked: true });
  const ready: (() => Promise<Transfer>)[] = [];
  for (const row of rows) {
    const { edge, direction, pace } = row;
    const name = `${edge.name}, ${direction}, ${pace.name}`;
    const progress = { bytes: 0 };
    const run =
      direction === 'download'
        ? await download(scope, row, from, progress)
        : await upload(scope, row, options.bytes, progress);
    ready.push(() =>
      run(options).then(
        (outcome) => ({ row: name, ...outcome }),
        (error) => ({ row: name, arrived: `${progress.bytes} of ${options.bytes} bytes`, sent: '', error: `${error}` }),
      ),
    );
  }
  return Promise.all(ready.map((run) => run()));
}

/** Moves the bytes of a tunnel that is open. */
type Run = (options: TransferOptions) => Promise<Outcome>;

type Outcome = Pick<Transfer, 'arrived' | 'sent'>;

async function download(
  scope: Scope,
  { edge, pace }: Row,
  from: Awaited<ReturnType<typeof source>>,
  progress: { bytes: number },
): Promise<Run> {
  const tunnel = await dial(scope, edge, from.authority);
  const digest = new Digest();
  return async ({ bytes, deadline }) => {
    read(tunnel, pace, (chunk) => {
      digest.update(chunk);
      progress.bytes = digest.bytes;
    });
    tunnel.write('?');
    await arrived(tunnel, () => digest.bytes >= bytes, deadline);
    tunnel.end();
    return { arrived: `${digest}`, sent: `${bytes} ${from.sha256}` };
  };
}

async function upload(scope: Scope, { edge, pace }: Row, bytes: number, progress: { bytes: number }): Promise<Run> {
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
  return async ({ deadline }) => {
    tunnel.resume();
    const sent = new Digest();
    offer(tunnel, bytes, sent);
    await arrived(tunnel, () => answer.endsWith('\n'), deadline);
    tunnel.end();
    return { arrived: answer.trim(), sent: `${sent}` };
  };
}

function arrived(tunnel: Duplex, whole: () => boolean, deadline: number): Promise<true> {
  return until(whole, {
    deadline,
    every: 50,
    what: 'all bytes',
    hopeless: () => (tunnel.destroyed && !whole() ? `the tunnel was cut: ${tunnel.errored?.message}` : undefined),
  });
}

/** Writes as fast as the tunnel accepts bytes. */
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

/** Reads bytes at a pace, with the stream paused in between. */
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
