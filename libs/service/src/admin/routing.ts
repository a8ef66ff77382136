import {
  type Destination,
  type Dial,
  DialError,
  type Explanation,
  type PlaneEvents,
  parseDestination,
} from '@isthmus/tunnel';
import { absent, invalid } from './refusals.ts';

/** A gateway's way to dial, for an operator to explain and to try. */
export interface RoutingPart {
  /** Of callers that name none. */
  readonly tenant: string;
  readonly zone: string;
  /** How long a dial may take, and how long of that it may wait for a session to come, in milliseconds. */
  readonly dialTimeout: number;
  readonly parkTimeout: number;
  /** The gateway's Dial, as callers have it: admitted, routed, observed. */
  readonly dial: Dial;
  readonly events: PlaneEvents;
  explain(tenant: string, destination: Destination): Explanation;
}

/** @throws ServerError */
export function routingOf(part: RoutingPart | undefined): RoutingPart {
  if (part) return part;
  throw absent('this program chooses no sessions: ask a gateway of the plane');
}

/** What an operator asks about. @throws ServerError */
export function destinationOf(text: string): Destination {
  try {
    return parseDestination(text);
  } catch (error) {
    throw error instanceof DialError ? invalid(error.message) : error;
  }
}
