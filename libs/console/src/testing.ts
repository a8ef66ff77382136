import { aWitness } from '@isthmus/findings/testing';
import { NOTHING, type Plane, type Seen } from './model/plane.ts';
import type { Dial } from './rpc.ts';

/** Messages for tests, with the fields that a test gives. */

export function aMember(id: string, given: Partial<Seen> = {}): Seen {
  return { ...aWitness(id), zone: '', self: false, ...given };
}

export function aPlane(given: Partial<Plane> = {}): Plane {
  return { ...NOTHING, at: 1_000_000, ...given };
}

export function aDial(dialId: string, given: Partial<Dial> = {}): Dial {
  return {
    dialId,
    role: 1,
    tenant: 'default',
    destination: '10.0.0.1:443',
    caller: 'uds',
    via: 'grpc',
    startedMs: 1000,
    state: 2,
    ms: 5,
    error: undefined,
    agentId: 'a',
    sessionId: 's',
    hubId: 'h1',
    timing: undefined,
    attempts: [],
    parkedMs: 0,
    traceId: '',
    phases: [],
    firstByteMs: undefined,
    ...given,
  };
}
