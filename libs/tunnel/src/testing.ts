import { PassThrough } from 'node:stream';
import type { Dial, DialRequest, Established } from './dial.ts';
import { Directory } from './directory.ts';
import type { DialError } from './errors.ts';
import { planeEvents } from './events.ts';
import type { Observation } from './observe.ts';
import { routed } from './route.ts';
import { noTracer } from './trace.ts';

export const request: DialRequest = {
  id: '00000000000000aa',
  tenant: 'default',
  destination: { host: 'x', port: 1 },
  deadline: 1e12,
  signal: new AbortController().signal,
};

/** One session on each hub, called as the hub is; on a hub that is named again, another. */
export function plane(...hubIds: string[]): Directory {
  const directory = new Directory(() => 0);
  for (const [index, hubId] of hubIds.entries()) {
    const hub = { hubId, incarnation: 1, peerAddress: 'p', agentAddress: '', zone: '', draining: false };
    const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
    directory.apply({ kind: 'hub', hub });
    directory.apply({
      kind: 'session',
      session: {
        ...{ sessionId: `${index} on ${hubId}`, tenant: 'default', agentId: 'a', identifiers, hubId },
        ...{ incarnation: 1, version: 1, draining: false, since: 0 },
      },
    });
  }
  return directory;
}

/** What the registry tells of a hub and its session. */
export function join(directory: Directory, hubId: string): void {
  const joined = plane(hubId);
  for (const hub of joined.hubs()) directory.apply({ kind: 'hub', hub });
  for (const session of joined.sessions()) directory.apply({ kind: 'session', session });
}

export function established(): Established {
  const stream = new PassThrough();
  return {
    end: { stream, halfOpen: true, abort: () => void stream.destroy() },
    ...{ agentId: 'a', sessionId: 's', hubId: 'h', timing: {} },
  };
}

export const unobserved = (): Observation => ({ events: planeEvents(), tracer: noTracer });

export function routing(directory: Directory, dials: Record<string, Dial | undefined>, parkTimeout = 0): Dial {
  const options = { strategies: ['default'], zone: '', observation: unobserved() } as const;
  return routed({ ...options, directory, parkTimeout, hub: (hubId) => dials[hubId] });
}

export const failing =
  (tried: string[], name: string, error: DialError): Dial =>
  () => {
    tried.push(name);
    return Promise.reject(error);
  };

/** A hub that hangs; `seen` gets what was asked of it. */
export const silent =
  (seen: DialRequest[]): Dial =>
  (dial) => {
    seen.push(dial);
    return new Promise(() => {});
  };
