import type { TestContext } from 'node:test';
import { type AgentIdentifiers, Deadlines, type Dial, type DialError, type DialRequest } from '@isthmus/tunnel';
import { established, unobserved } from '@isthmus/tunnel/testing';
import { routed } from '../attempts.ts';
import { Directory } from '../directory.ts';
import type { Session, Strategy } from '../placement.ts';
import type { HubRecord, SessionRecord } from '../registry.ts';
import { route } from '../route.ts';

export const nothing: AgentIdentifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

export function hub(hubId: string, more: Partial<HubRecord> = {}): HubRecord {
  return { hubId, incarnation: 1, peerAddress: '', agentAddress: '', zone: '', draining: false, ...more };
}

export function session(sessionId: string, more: Partial<SessionRecord> = {}): SessionRecord {
  return {
    sessionId,
    tenant: 'default',
    agentId: sessionId,
    identifiers: nothing,
    hubId: 'h1',
    incarnation: 1,
    version: 1,
    draining: false,
    since: 0,
    ...more,
  };
}

export function directory(hubs: HubRecord[], sessions: SessionRecord[], ownHub?: string): Directory {
  const all = new Directory(ownHub === undefined ? {} : { ownHub });
  all.reset({ hubs, sessions, quarantines: [] });
  return all;
}

/** One session on each hub, named `INDEX on HUB`. A hub that is named again gets another session. */
export function plane(...hubIds: string[]): Directory {
  const all = new Directory({ random: () => 0 });
  for (const [index, hubId] of hubIds.entries()) {
    all.apply({ kind: 'hub', hub: hub(hubId, { peerAddress: 'p' }) });
    all.apply({ kind: 'session', session: session(`${index} on ${hubId}`, { agentId: 'a', hubId }) });
  }
  return all;
}

/** Applies what the registry reports about a hub and its session. */
export function join(directory: Directory, hubId: string): void {
  const joined = plane(hubId);
  for (const hub of joined.hubs()) directory.apply({ kind: 'hub', hub });
  for (const session of joined.sessions()) directory.apply({ kind: 'session', session });
}

export interface Ask {
  tenant?: string;
  strategies?: Strategy[];
  zone?: string;
  excluded?: string[];
}

/** Returns the first session of a route, while every hub can be reached. */
export function best(
  from: Directory,
  host: string,
  { tenant = 'default', strategies = ['default'], zone = '', excluded = [] }: Ask = {},
): Session | undefined {
  const options = {
    directory: from,
    strategies,
    zone,
    nextHop: () => ({ dial: async () => established() }),
    suspects: new Set<string>(),
  };
  const first = route(options, { tenant, host, tried: new Set(excluded) }).next().value;
  return first?.rank && first.session;
}

/** Returns every session that is chosen in a hundred rounds. */
export function chosen(
  from: Directory,
  host: string,
  { tenant = 'default', strategies = ['default'], zone = '', excluded = [] }: Ask = {},
) {
  const found = new Set<string>();
  for (let round = 0; round < 100; round++) {
    const session = best(from, host, { tenant, strategies, zone, excluded });
    if (session) found.add(session.record.sessionId);
  }
  return [...found].sort();
}

/** Returns the way to a hub with this dial. */
export function hop(dial: Dial | undefined): { readonly dial: Dial } | undefined {
  return dial && { dial };
}

export function routing(
  directory: Directory,
  dials: Record<string, Dial | undefined>,
  parkTimeout = 0,
  observation = unobserved(),
): Dial {
  // Of its own, so that a test's clock moves no other test's.
  const options = { strategies: ['default'], zone: '', observation, deadlines: new Deadlines() } as const;
  return routed({ ...options, directory, parkTimeout, nextHop: (hubId) => hop(dials[hubId]) });
}

export const failing =
  (tried: string[], name: string, error: DialError): Dial =>
  () => {
    tried.push(name);
    return Promise.reject(error);
  };

/** Returns a hub that never answers. `seen` collects the requests that it got. */
export const silent =
  (seen: DialRequest[]): Dial =>
  (dial) => {
    seen.push(dial);
    return new Promise(() => {});
  };

/** Stops the time of a test. @returns what lets some pass, in milliseconds, by steps: a timer may be made for what is due next */
export function stoppedTime(context: TestContext): (ms: number) => void {
  const { mock } = context;
  // Node does so itself, and Deno does not.
  context.after(() => mock.reset());
  let now = Math.ceil(performance.now());
  mock.method(performance, 'now', () => now);
  mock.timers.enable({ apis: ['setTimeout'] });
  return (ms) => {
    for (const end = now + ms; now < end; ) {
      now++;
      mock.timers.tick(1);
    }
  };
}
