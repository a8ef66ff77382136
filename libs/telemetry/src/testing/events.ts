import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import { type DialRequest, type PlaneEvents, planeEvents } from '@isthmus/tunnel';
import { logEvents } from '../logging/log-events.ts';
import { createLogger, type LoggerOptions } from '../logging/logger.ts';

/** A dial without a caller, which never expires and is never aborted. */
export const request: DialRequest = {
  id: '00000000000000d1',
  tenant: 'default',
  destination: { host: '10.0.0.1', port: 443 },
  deadline: Number.POSITIVE_INFINITY,
  signal: new AbortController().signal,
};

/** Returns which files of OpenTelemetry a new Node process loads when it runs `source` with `env`. */
export function loadedSdk(source: readonly string[], env: Readonly<Record<string, string>>): string[] {
  const lines = [
    "import { createRequire } from 'node:module';",
    ...source,
    "const loaded = Object.keys(createRequire(import.meta.url).cache).filter((path) => path.includes('@opentelemetry'));",
    'console.log(JSON.stringify(loaded));',
  ];
  const argv = ['--input-type=module', '--eval', lines.join('\n')];
  const { stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8', env: { ...process.env, ...env } });
  assert.notEqual(stdout, '', stderr);
  return JSON.parse(stdout);
}

/** Sets variables of the process until the returned object is disposed of. Other OTEL_ variables are unset meanwhile. */
export function withEnvironment(env: Readonly<Record<string, string | undefined>>): Disposable {
  const before = { ...process.env };
  const set = (variables: Readonly<Record<string, string | undefined>>) => {
    for (const name of Object.keys(process.env)) if (name.startsWith('OTEL_')) delete process.env[name];
    for (const [name, value] of Object.entries(variables)) if (value !== undefined) process.env[name] = value;
  };
  set(env);
  return {
    [Symbol.dispose]: () =>
      set(Object.fromEntries(Object.entries(before).filter(([name]) => name.startsWith('OTEL_')))),
  };
}

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
export function logged(emit: (events: PlaneEvents) => void, verbosity = 4, slowMs?: number) {
  const { logger, records } = recorder({ verbosity });
  const events = planeEvents();
  const end = logEvents(events, logger, slowMs);
  emit(events);
  end();
  assert.deepEqual(events.eventNames(), []);
  return records();
}
