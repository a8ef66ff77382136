import type { Duplex } from 'node:stream';
import { CallError } from './call-error.ts';
import { connectCall } from './connect.ts';
import type { Door, Protocol } from './door.ts';
import { grpcCall } from './grpc.ts';

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
  doors: readonly Door[],
  first: number,
  protocol: Protocol,
  destination: string,
): Promise<Dialled> {
  for (let tried = 0; ; tried++) {
    const by = (first + tried) % doors.length;
    try {
      return { stream: await answered(doors[by] as Door, protocol, destination), by };
    } catch (error) {
      const elsewhere = error instanceof CallError && error.kind !== 'failed';
      if (!elsewhere || tried + 1 >= doors.length) throw error;
    }
  }
}

async function answered(door: Door, protocol: Protocol, destination: string): Promise<Duplex> {
  const call = protocol === 'grpc' ? grpcCall(door.grpc, destination) : connectCall(door, protocol, destination);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new CallError('failed', `no answer within ${ANSWER_WITHIN / 1000} s`);
    timer = setTimeout(() => reject(error), ANSWER_WITHIN);
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
