// Destinations in their own process: each waits for a first byte, and then sends without end, or never reads again.
import { createServer, type Socket } from 'node:net';
import { clock } from '../clock.ts';

export interface SourceSettings {
  /** Bytes per second of each; 0: as many as possible. */
  readonly rate: number;
  /** Reads nothing after the first byte, and sends nothing. */
  readonly deaf: boolean;
}

export interface SourceReport {
  readonly port: number;
  readonly open: number;
  /** When the number of open sockets last changed, by the shared clock. */
  readonly changedAt: number;
}

const CHUNK = Buffer.alloc(64 * 1024, 0x69);
const TICK = 100;
const REPORT_EVERY = 50;

function pour(socket: Socket): void {
  const write = () => {
    while (socket.writable && socket.write(CHUNK));
  };
  socket.on('drain', write);
  write();
}

function drip(socket: Socket, rate: number): void {
  const portion = Buffer.alloc(Math.round((rate * TICK) / 1000), 0x69);
  const timer = setInterval(() => socket.writableNeedDrain || socket.write(portion), TICK);
  socket.once('close', () => clearInterval(timer));
}

function serve({ rate, deaf }: SourceSettings): void {
  let open = 0;
  let changedAt = clock();
  const server = createServer((socket) => {
    open++;
    socket.on('error', () => {});
    socket.once('close', () => {
      open--;
      changedAt = clock();
    });
    socket.once('data', () => {
      if (deaf) socket.pause();
      else if (rate > 0) drip(socket, rate);
      else pour(socket);
    });
  });
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as { port: number };
    setInterval(() => process.send?.({ port, open, changedAt } satisfies SourceReport), REPORT_EVERY);
  });
}

process.once('message', (settings) => serve(settings as SourceSettings));
process.once('disconnect', () => process.exit(0));
