import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, isIP, type Socket } from 'node:net';
import { parseDestination } from '@isthmus/tunnel';
import { messageOf } from '../exit.ts';
import type { DialView, PhaseView } from './text.ts';

export interface HereOptions {
  /** `host:port` */
  readonly destination: string;
  readonly withinMs: number;
  /** How long to wait for a first byte; 0 to wait for none. */
  readonly firstByteMs: number;
}

/** The names that a plane has for these errors (RFC 9209). */
const CODES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection_refused',
  ETIMEDOUT: 'connection_timeout',
  EHOSTUNREACH: 'destination_ip_unroutable',
  ENETUNREACH: 'destination_ip_unroutable',
  EACCES: 'destination_ip_prohibited',
  EPERM: 'destination_ip_prohibited',
  ENOTFOUND: 'dns_error',
  EAI_AGAIN: 'dns_timeout',
};

const ADVICE = [
  'this dial was made from this machine, without the plane: an agent may be able to reach what this machine cannot',
  'compare it with the same dial without --from here',
];

/** Opens a connection straight from this machine, and closes it. */
export async function dialFromHere({ destination, withinMs, firstByteMs }: HereOptions): Promise<DialView> {
  const { host, port } = parseDestination(destination);
  const start = performance.now();
  const phases: PhaseView[] = [];
  const timed = async <T>(name: string, act: () => Promise<T>): Promise<T> => {
    const from = performance.now();
    const done = (failed: boolean) => {
      const ms = performance.now() - from;
      phases.push({ name, depth: 1, startMs: from - start, ms, detail: '', failed });
    };
    try {
      const value = await act();
      done(false);
      return value;
    } catch (error) {
      done(true);
      throw error;
    }
  };
  const deadline = AbortSignal.timeout(withinMs);
  let socket: Socket | undefined;
  try {
    const address = isIP(host) === 0 ? (await timed('dns', () => before(deadline, lookup(host)))).address : host;
    const opened = connect({ host: address, port });
    socket = opened;
    await timed('connect', () => once(opened, 'connect', { signal: deadline }));
    const ms = performance.now() - start;
    const first = firstByteMs > 0 ? await firstByte(opened, firstByteMs) : {};
    const { firstByteMs: took } = first;
    const waited = { name: 'first_byte', depth: 0, startMs: ms, detail: '', failed: false };
    const view = viewOf(destination, ms, phases);
    return {
      ...view,
      ok: true,
      ...first,
      phases: [...view.phases, ...(took === undefined ? [] : [{ ...waited, ms: took }])],
    };
  } catch (error) {
    const ms = performance.now() - start;
    const code = deadline.aborted
      ? 'connection_timeout'
      : (CODES[(error as NodeJS.ErrnoException).code ?? ''] ?? 'proxy_internal_error');
    const text = deadline.aborted ? `no answer within ${withinMs / 1000} s` : messageOf(error);
    return { ...viewOf(destination, ms, phases), ok: false, error: { code, text, advice: ADVICE } };
  } finally {
    socket?.destroy();
  }
}

/** A lookup cannot be aborted, so nobody waits for it any more. */
function before<T>(deadline: AbortSignal, wanted: Promise<T>): Promise<T> {
  const late = once(deadline, 'abort').then(() => Promise.reject(deadline.reason));
  return Promise.race([wanted, late]);
}

type FirstByte = Pick<DialView, 'firstByteMs' | 'silentMs' | 'ended'>;

async function firstByte(socket: Socket, ms: number): Promise<FirstByte> {
  const start = performance.now();
  const signal = AbortSignal.timeout(ms);
  try {
    const came = once(socket, 'data', { signal }).then(() => true);
    const ended = once(socket, 'end', { signal }).then(() => false);
    if (await Promise.race([came, ended])) return { firstByteMs: performance.now() - start };
    return { ended: 'closed by the destination' };
  } catch (error) {
    return signal.aborted ? { silentMs: ms } : { ended: messageOf(error) };
  }
}

function viewOf(destination: string, ms: number, parts: readonly PhaseView[]): Omit<DialView, 'ok'> {
  const whole = { name: 'here', depth: 0, startMs: 0, ms, detail: '', failed: false };
  const none = { gateway: '', dial: '', trace: '', tenant: '', agent: '', hub: '', session: '' };
  return { destination, ...none, ms, phases: [whole, ...parts] };
}
