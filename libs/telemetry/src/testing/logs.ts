import assert from 'node:assert/strict';
import { type DialRequest, type PlaneEvents, planeEvents } from '@isthmus/tunnel';
import { logEvents } from '../logging/log-events.ts';
import { createLogger, type LoggerOptions } from '../logging/logger.ts';
import { request } from './dial.ts';

export const dial: DialRequest = {
  ...request,
  destination: { host: 'fd00::1', port: 443 },
  caller: { via: 'http-connect', identity: 'CN=kube-apiserver' },
  traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
};

/** Returns a logger, and the lines that it wrote. */
export function recorder(options: Partial<LoggerOptions> = {}) {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger({ name: 'gateway', format: 'json', verbosity: 4, destination, ...options });
  return { lines, logger, records: () => lines.map((line) => JSON.parse(line)) };
}

/** Returns the log records that events produce. */
export function logged(emit: (events: PlaneEvents) => void, verbosity = 4) {
  const { logger, records } = recorder({ verbosity });
  const events = planeEvents();
  const end = logEvents(events, logger);
  emit(events);
  end();
  assert.deepEqual(events.eventNames(), []);
  return records();
}
