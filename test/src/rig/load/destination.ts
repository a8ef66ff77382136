// The destination of all loads, in its own process: it does what each connection asks, behind a ClientHello or not.
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { clock } from '../clock.ts';
import { Exchange } from './exchange.ts';
import { HELLO, HELLO_BYTES } from './hello.ts';
import { HEADER_BYTES, MODES, type Question } from './modes.ts';
import { Position } from './pattern.ts';

/** At most one period of the pattern. */
const CHUNK = 60 * 1024;

/** Chunks that one connection gets in a tick of the event loop: while its reader keeps up, a socket would take more without end. */
const CHUNKS_A_TURN = 4;

/** Modes with an id and a number. */
const COUNTED: readonly number[] = [MODES.source, MODES.file, MODES.sink, MODES.stall, MODES.exchange];

interface Tally {
  bytes: number;
  corrupt: boolean;
  stopped: boolean;
}

const tallies = new Map<number, Tally>();
const stalled = new Set<Socket>();

function tallyOf(id: number): Tally {
  let tally = tallies.get(id);
  if (!tally) {
    tally = { bytes: 0, corrupt: false, stopped: false };
    tallies.set(id, tally);
  }
  return tally;
}

/** The destination's end of a long tunnel that ended. */
export interface TunnelEnd {
  readonly tunnel: number;
  readonly at: number;
}

/** What it answers to each message: connections that are open, and when their number last fell, by the shared clock; and of long tunnels. */
const state = { open: 0, changedAt: clock(), ends: [] as TunnelEnd[], wrong: [] as string[] };

export type DestinationState = typeof state;

function serve(socket: Socket): void {
  state.open++;
  socket.once('close', () => Object.assign(state, { open: state.open - 1, changedAt: clock() }));
  socket.setNoDelay(true);
  socket.on('error', () => {});
  let head: Buffer = Buffer.alloc(0);
  const read = (chunk: Buffer) => {
    head = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
    if (head[0] === HELLO && head.length < HELLO_BYTES) return;
    if (head[0] === HELLO) head = head.subarray(HELLO_BYTES);
    const [mode] = head;
    const length = mode !== undefined && COUNTED.includes(mode) ? HEADER_BYTES : 1;
    if (head.length < length) return;
    socket.off('data', read);
    begin(socket, head.subarray(0, length), head.subarray(length));
  };
  socket.on('data', read);
}

function begin(socket: Socket, head: Buffer, rest: Buffer): void {
  const tally = head.length === HEADER_BYTES ? tallyOf(head.readUInt32BE(1)) : undefined;
  switch (head[0]) {
    case MODES.echo:
      if (rest.length > 0) socket.write(rest);
      socket.on('data', (chunk: Buffer) => socket.write(chunk));
      break;
    case MODES.control:
      control(socket, rest);
      break;
    case MODES.source:
      socket.resume();
      pour(socket, tally as Tally, { kbPerSecond: head.readUInt32BE(5) });
      break;
    case MODES.file:
      socket.resume();
      pour(socket, tally as Tally, { length: head.readUInt32BE(5) * 1024 });
      break;
    case MODES.sink:
      takeIn(socket, tally as Tally, rest, head.readUInt32BE(5));
      break;
    case MODES.exchange:
      exchange(socket, head.readUInt32BE(1), head.readUInt32BE(5), rest);
      break;
    case MODES.stall:
      stand(socket, tally as Tally, rest);
      break;
    default:
      socket.destroy();
  }
}

/** Sends the pattern until the load says to stop or so much was sent, as fast as possible or at a steady rate. */
function pour(socket: Socket, tally: Tally, { kbPerSecond = 0, length = Number.POSITIVE_INFINITY }): void {
  const at = new Position();
  const from = performance.now();
  let sent = 0;
  const ahead = () => (kbPerSecond === 0 ? 0 : sent / kbPerSecond - (performance.now() - from));
  const write = () => {
    let room = true;
    for (let left = CHUNKS_A_TURN; room && left > 0; left--) {
      if (tally.stopped || sent === length) {
        socket.end();
        return;
      }
      const wait = ahead();
      if (wait > 0) {
        setTimeout(write, wait);
        return;
      }
      if (socket.destroyed) return;
      const chunk = at.next(Math.min(CHUNK, length - sent));
      room = socket.write(chunk);
      sent += chunk.length;
      tally.bytes += chunk.length;
    }
    if (room) setImmediate(write);
    else socket.once('drain', write);
  };
  write();
}

/** Reads the pattern, as fast as it comes or at a steady rate. */
function takeIn(socket: Socket, tally: Tally, rest: Buffer, kbPerSecond: number): void {
  const at = new Position();
  const take = (chunk: Buffer) => {
    tally.bytes += chunk.length;
    if (!at.matches(chunk)) tally.corrupt = true;
    if (kbPerSecond === 0) return;
    socket.pause();
    setTimeout(() => socket.resume(), chunk.length / kbPerSecond);
  };
  take(rest);
  socket.on('data', take);
}

function exchange(socket: Socket, tunnel: number, frames: number, rest: Buffer): void {
  let open = true;
  const over = () => {
    if (open) state.ends.push({ tunnel, at: clock() });
    open = false;
  };
  socket.once('end', over).once('close', over);
  const tells = { over: () => {}, paused: () => {}, wrong: (text: string) => state.wrong.push(text) };
  new Exchange(socket, { tunnel, frames, end: 'destination' }, tells).take(rest);
}

function stand(socket: Socket, tally: Tally, rest: Buffer): void {
  takeIn(socket, tally, rest, 0);
  stalled.add(socket.pause());
  socket.once('close', () => stalled.delete(socket));
}

function control(socket: Socket, rest: Buffer): void {
  const lines = createInterface({ input: socket });
  lines.on('line', (line) => {
    const { id = 0, act }: Question = JSON.parse(line);
    const tally = tallyOf(id);
    if (act === 'stop') tally.stopped = true;
    if (act === 'release') for (const each of stalled) each.resume();
    socket.write(`${JSON.stringify(tally)}\n`);
  });
  if (rest.length > 0) socket.unshift(rest);
}

const server = createServer({ highWaterMark: 256 * 1024 }, serve);
// Without an address, only this machine's processes reach it.
server.listen({ host: process.argv[2] || '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.send?.((server.address() as { port: number }).port);
});
process.on('message', () => process.send?.(state));
process.once('disconnect', () => process.exit(0));
