import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import { test } from 'node:test';

const onDeno = 'Deno' in globalThis;

const url = (path: string) => JSON.stringify(import.meta.url.replace('logging/exit.test', path));

/** A program that has to record a failed dial, cannot open its audit file, and exits. */
const program = `
import process from 'node:process';
import { DialError, dialLog, planeEvents } from ${JSON.stringify(import.meta.resolve('@isthmus/tunnel'))};
import { auditTrail } from ${url('audit/trail')};
import { createLogger } from ${url('logging/logger')};
import { request } from ${url('testing/dial')};

const logger = createLogger({ name: 'gateway', format: 'json', verbosity: 0 });
const events = planeEvents();
const where = { process: 'gw-1', of: { dials: true, others: false }, log: '/dev/null/audit.log', otlp: false };
await auditTrail(events, { ...where, program: 'p', role: 'gateway', version: '1', logger, env: {} });
logger.error({}, 'before');
const error = new DialError('dns_error', 'no such host');
events.emit('dial:end', 'gateway', { ...request, log: dialLog() }, { ms: 1, error });
process.exit(3);
`;

test('what is logged while a process exits is written, even by listeners that are called late', () => {
  // Passed on standard input, because Deno resolves imports from the program's directory or from where it is run.
  const launch = onDeno ? ['run', '--allow-all', '--no-check', '-'] : ['--input-type=module', '-'];
  const { status, stderr } = spawnSync(process.execPath, launch, { input: program, encoding: 'utf8', timeout: 60_000 });
  assert.equal(status, 3, stderr);
  assert.match(stderr, /"msg":"before"}\n(.*\n)*.*"msg":"audit records are lost"}\n$/);
});
