import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { DialError, type DialRequest, dialLog, planeEvents } from '@isthmus/tunnel';
import { createLogger } from '../logging/logger.ts';
import { request } from '../testing/dial.ts';
import { auditTrail } from './trail.ts';

const dial: DialRequest = { ...request, log: dialLog() };

test('a process that exits while its audit is closing still writes the waiting records', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'audit-'));
  try {
    const log = join(directory, 'audit.log');
    const events = planeEvents();
    const logger = createLogger({ name: 'gateway', format: 'json', verbosity: 0, destination: { write() {} } });
    const before = process.listeners('exit');
    const trail = await auditTrail(events, {
      process: 'gw-1',
      of: { dials: true, others: false },
      program: 'frontend-gw',
      role: 'gateway',
      version: '1',
      logger,
      log,
      otlp: false,
      env: {},
    });
    assert.ok(trail);
    events.emit('dial:end', 'gateway', dial, { ms: 1, error: new DialError('dns_error', 'no such host') });
    const closed = trail.close();
    const added = process.listeners('exit').filter((listener) => !before.includes(listener));
    assert.equal(added.length, 1, 'an exit is still seen');
    await closed;
    assert.deepEqual(process.listeners('exit'), before);
    assert.equal(JSON.parse(readFileSync(log, 'utf8')).outcome, 'dns_error');
  } finally {
    rmSync(directory, { recursive: true });
  }
});
