import type { Duplex } from 'node:stream';
import type { Ways } from '../harness/index.ts';
import { CallError, connectCall } from './connect.ts';
import { grpcCall } from './grpc.ts';

export const PROTOCOLS = ['grpc', 'connect', 'mtls'] as const;
/** gRPC and HTTP CONNECT over the unix socket, HTTP CONNECT over mutual TLS. */
export type Protocol = (typeof PROTOCOLS)[number];

/** An API server gives up after 30 s. Here a dial fails after a third of that. */
const ANSWER_WITHIN = 10_000;

export interface Dialled {
  readonly stream: Duplex;
  /** The index of the gateway that took it. */
  readonly by: number;
}

/**
 * Dials as an API server behind a load balancer does: first the gateway `first`, and another one only if that refuses the connection or
 * says by its retry hint that it is leaving.
 */
export async function dial(
  doors: readonly Ways[],
  first: number,
  protocol: Protocol,
  destination: string,
  within = ANSWER_WITHIN,
): Promise<Dialled> {
  for (let tried = 0; ; tried++) {
    const by = (first + tried) % doors.length;
    try {
      return { stream: await answered(doors[by] as Ways, protocol, destination, within), by };
    } catch (error) {
      const elsewhere = error instanceof CallError && error.kind !== 'failed';
      if (!elsewhere || tried + 1 >= doors.length) throw error;
    }
  }
}

/**
 * Dials once.
 * @param ms how long the answer may take
 * @param window how many bytes may be sent ahead of a gRPC caller, if not HTTP/2's default
 */
export async function answered(
  door: Ways,
  protocol: Protocol,
  destination: string,
  ms: number,
  window?: number,
): Promise<Duplex> {
  const call =
    protocol === 'grpc' ? grpcCall(door.grpc.uds, destination, window) : connectCall(door, protocol, destination);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new CallError('failed', `no answer within ${ms / 1000} s`);
    timer = setTimeout(() => reject(error), ms);
  });
  try {
    return await Promise.race([call.answer, late]);
  } catch (error) {
    call.end();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
