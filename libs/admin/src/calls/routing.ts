import {
  type Destination,
  type Dial,
  DialError,
  type Explanation,
  type PlaneEvents,
  parseDestination,
} from '@isthmus/tunnel';
import { absent, invalid } from './refusals.ts';

/** A gateway's dialling, for an operator to explain and to try. */
export interface RoutingPart {
  /** The tenant of callers that name none. */
  readonly tenant: string;
  readonly zone: string;
  /** How long a dial may take, and how much of that it may wait for a session to open, in milliseconds. */
  readonly dialTimeout: number;
  readonly parkTimeout: number;
  /** The gateway's Dial as callers use it: admitted, routed, observed. */
  readonly dial: Dial;
  readonly events: PlaneEvents;
  /** @param caller the caller's name, for rules that name callers */
  explain(tenant: string, destination: Destination, caller: string): Explanation;
}

/** @throws ServerError if the program is no gateway */
export function routingOf(part: RoutingPart | undefined): RoutingPart {
  if (part) return part;
  throw absent('this program routes no dials: ask a gateway of the plane');
}

/** Parses the destination in an operator's request. @throws ServerError */
export function destinationOf(text: string): Destination {
  try {
    return parseDestination(text);
  } catch (error) {
    throw error instanceof DialError ? invalid(error.message) : error;
  }
}
