// The clients of an API server, in a process of their own.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { cpuMs, residentBytes } from '../../harness/processes.ts';
import { quantile } from '../figures.ts';
import { helloOf } from './hello.ts';
import { ECHO, type LoadFigures, type LoadSettings, REQUEST_BYTES, SOURCE, type Work } from './messages.ts';

/** New code is slow: V8 compiles what runs often. */
const WARM_MS = 4000;

async function open(port: number, wants: string): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  await once(socket, 'connect');
  socket.on('error', () => {});
  socket.write(Buffer.concat([helloOf(randomBytes(32)), Buffer.from(wants)]));
  return socket;
}

/** Waits for so many bytes. */
function take(socket: Socket, bytes: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = bytes;
    const read = (chunk: Buffer) => {
      left -= chunk.length;
      if (left > 0) return;
      socket.off('data', read).off('close', gone);
      resolve();
    };
    const gone = () => reject(new Error('a connection ended'));
    socket.on('data', read).once('close', gone);
  });
}

/** Repeats a step on each of several connections at once, warms up, and counts in a window. @returns times of each step, in milliseconds */
async function repeated({ conns, windowMs }: LoadSettings, step: (index: number) => Promise<void>): Promise<number[]> {
  const times: number[] = [];
  let counting = false;
  let over = false;
  const runs = Array.from({ length: conns }, async (_, index) => {
    while (!over) {
      const start = performance.now();
      await step(index);
      if (counting && !over) times.push(performance.now() - start);
    }
  });
  await pause(WARM_MS);
  counting = true;
  await pause(windowMs);
  over = true;
  await Promise.all(runs);
  return times;
}

const WORK: Readonly<Record<Work, (settings: LoadSettings, used: () => number) => Promise<LoadFigures>>> = {
  async connections(settings) {
    const times = await repeated(settings, async () => {
      const socket = await open(settings.port, `${ECHO}.`);
      await take(socket, 1);
      socket.destroy();
    });
    return { per_s: (times.length * 1000) / settings.windowMs, p99_ms: quantile(times, 0.99) };
  },
  async bulk({ port, conns, windowMs }) {
    let bytes = 0;
    const sockets = await Promise.all(Array.from({ length: conns }, () => open(port, SOURCE)));
    for (const socket of sockets)
      socket.on('data', ({ length }: Buffer) => {
        bytes += length;
      });
    await pause(WARM_MS);
    const before = bytes;
    const cpu = usedMs();
    const start = performance.now();
    await pause(windowMs);
    const gb = (bytes - before) / 1e9;
    const figures = { gb_per_s: (gb * 1000) / (performance.now() - start), cpu_s_per_gb: (usedMs() - cpu) / 1000 / gb };
    for (const socket of sockets) socket.destroy();
    return figures;
  },
  async requests(settings) {
    const sockets = await Promise.all(Array.from({ length: settings.conns }, () => open(settings.port, ECHO)));
    const request = Buffer.alloc(REQUEST_BYTES, '.');
    const times = await repeated(settings, async (index) => {
      const socket = sockets[index] as Socket;
      socket.write(request);
      await take(socket, REQUEST_BYTES);
    });
    for (const socket of sockets) socket.destroy();
    return {
      per_s: (times.length * 1000) / settings.windowMs,
      p50_ms: quantile(times, 0.5),
      p99_ms: quantile(times, 0.99),
    };
  },
  async idle({ port, conns, pid }) {
    const before = residentBytes(pid);
    for (let opened = 0; opened < conns; opened += 100)
      await Promise.all(
        Array.from({ length: 100 }, async () => {
          const socket = await open(port, `${ECHO}.`);
          await take(socket, 1);
          kept.push(socket);
        }),
      );
    await pause(WARM_MS);
    return { kib_each: (residentBytes(pid) - before) / 1024 / conns };
  },
};

const kept: Socket[] = [];
let pid = 0;

function usedMs(): number {
  return pid === 0 ? 0 : cpuMs([pid]);
}

process.once('message', async (settings: LoadSettings) => {
  pid = settings.pid;
  const before = usedMs();
  const figures = await WORK[settings.work](settings, usedMs);
  const cpu = usedMs() - before;
  process.send?.({ ...figures, cpu_ms: cpu });
});
process.once('disconnect', () => process.exit(0));
