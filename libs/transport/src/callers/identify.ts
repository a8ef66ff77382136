import { type Caller, DialError, type NotAuthorised } from '@isthmus/tunnel';
import type { ConnectionPeer } from '../listen/connection-peer.ts';

/** A caller's connection. */
export type CallerPeer = ConnectionPeer;

/** Who dials on a connection. */
export interface CallerIdentity {
  readonly tenant: string;
  readonly caller: Omit<Caller, 'via'>;
}

/**
 * Says who a caller is, or why it may not dial. Called for each dial: one gRPC connection may carry
 * many, and gives the same peer. Throws DialError if its tenant has too many connections.
 */
export type Identify = (peer: CallerPeer) => CallerIdentity | NotAuthorised;

/** Every peer that reaches the port may dial, for this tenant. Its name is the subject of its certificate, or its address. */
export function anyoneOf(tenant: string): Identify {
  return ({ subject, remote }) => ({ tenant, caller: { identity: subject ?? remote, remote } });
}

/** The error of a dial by a caller that may not dial. */
export function denied(why: Error): DialError {
  return new DialError('http_request_denied', why.message, { cause: why });
}
