import net, { isIP, type Socket } from 'node:net';
import { keptAlive } from './keep-alive.ts';
import { names } from './resolve.ts';

/** Between the starts of two attempts, in milliseconds (RFC 8305 section 5). */
const APART_MS = 250;

export interface FirstOptions {
  /** Starts to connect. */
  readonly open: (address: string) => Socket;
  readonly connected: (socket: Socket) => void;
  /** With several addresses, an AggregateError with the error of each. */
  readonly failed: (error: NodeJS.ErrnoException) => void;
}

/**
 * Connects to whichever of several addresses answers first. Attempts start one after the other, and none is given up before one of them has
 * succeeded: of those that answer late, all others may be dead. Node's own `autoSelectFamily` gives each but the last 250 ms, and then
 * destroys it.
 * @returns what gives up
 */
export function connectFirst(addresses: readonly string[], { open, connected, failed }: FirstOptions): () => void {
  const errors: Error[] = [];
  const trying = new Set<Socket>();
  let started = 0;
  let lost = 0;
  let timer: NodeJS.Timeout | undefined;
  const giveUp = () => {
    clearTimeout(timer);
    for (const socket of trying) socket.on('error', () => {}).destroy();
    trying.clear();
  };
  const next = () => {
    clearTimeout(timer);
    const index = started++;
    const socket = open(addresses[index] as string);
    trying.add(socket);
    if (started < addresses.length) timer = setTimeout(next, APART_MS);
    const refused = (error: Error) => {
      trying.delete(socket);
      errors[index] = error;
      if (++lost === addresses.length) failed(addresses.length === 1 ? error : new AggregateError(errors));
      else if (started < addresses.length) next();
    };
    socket.once('error', refused).once('connect', () => {
      socket.off('error', refused);
      trying.delete(socket);
      giveUp();
      trying.add(socket);
      connected(socket);
    });
  };
  next();
  return giveUp;
}

export interface ConnectOptions {
  /** How long it may take, in milliseconds. */
  readonly timeout: number;
  /** Gives up the attempt. Has no effect on an established connection. */
  readonly signal?: AbortSignal | undefined;
}

/** Connects to a name or an address. The socket ignores errors from then on. */
export function connectTo(
  to: { readonly host: string; readonly port: number },
  options: ConnectOptions,
): Promise<Socket> {
  const { host, port } = to;
  const { timeout, signal } = options;
  return new Promise((resolve, reject) => {
    let giveUp = () => {};
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abandon);
    };
    const failed = (error: Error) => {
      over();
      giveUp();
      reject(error instanceof AggregateError ? error.errors[0] : error);
    };
    const connected = (socket: Socket) => {
      over();
      resolve(socket.on('error', () => {}));
    };
    const abandon = () => failed(new Error('connection attempt abandoned'));
    const late = () => failed(new Error(`no connection to ${host}:${port} within ${timeout / 1000} s`));
    const timer = setTimeout(late, Math.max(1, timeout));
    const open = (address: string) => keptAlive(net.connect({ host: address, port, noDelay: true }));
    if (signal?.aborted) return abandon();
    signal?.addEventListener('abort', abandon, { once: true });
    if (isIP(host) !== 0) giveUp = connectFirst([host], { open, connected, failed });
    else {
      giveUp = names.resolve(host, (error, found) => {
        if (error) return failed(error);
        const addresses = found.map(({ address }) => address);
        giveUp = connectFirst(addresses, { open, connected, failed });
      });
    }
  });
}
