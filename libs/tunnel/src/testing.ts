import { PassThrough } from 'node:stream';
import type { DialRequest, Established } from './dial/dial.ts';
import { planeEvents } from './events.ts';
import { noTracer, type Observation } from './observe.ts';

export { Noted } from './resume/testing/noted.ts';

export const request: DialRequest = {
  id: '00000000000000aa',
  tenant: 'default',
  destination: { host: 'x', port: 1 },
  deadline: 1e12,
  signal: new AbortController().signal,
};

export function established(): Established {
  const stream = new PassThrough();
  return {
    end: { stream, halfOpen: true, abort: () => void stream.destroy() },
    agentId: 'a',
    sessionId: 's',
    hubId: 'h',
    timing: {},
  };
}

export const unobserved = (): Observation => ({ events: planeEvents(), tracer: noTracer });
