import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialError, type PlaneEvents, planeEvents, type SessionInfo } from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';
import { dial, logged, recorder } from '../testing/events.ts';
import { logEvents } from './log-events.ts';

test('a flood of refusals is logged as a few lines and a count, separately for each place', (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { logger, records } = recorder();
  const events = planeEvents();
  const end = logEvents(events, logger);
  for (let i = 0; i < 100; i++) events.emit('refused', 'agent port', `10.0.0.${i}`, new Error('no TLS'));
  events.emit('refused', 'caller port', 'r', new Error('no TLS'));
  assert.equal(records().length, 11);
  context.mock.timers.tick(TELEMETRY.logRefusals.windowMs);
  const [{ where, count, msg }, ...others] = records().slice(11);
  assert.deepEqual([msg, where, count, others], ['further refusals were not logged', 'agent port', 90, []]);
  events.emit('refused', 'agent port', 'r', new Error('no TLS'));
  assert.equal(records().length, 13);
  end();
  assert.equal(records().length, 13);
});

test('dials refused by a limit are logged a few at a time, all others one by one', () => {
  const error = (code: 'connection_limit_reached' | 'connection_refused') => new DialError(code, 'too many open files');
  const records = logged((events) => {
    for (let i = 0; i < 50; i++) {
      events.emit('dial:end', 'gateway', dial, { ms: 1, error: error('connection_limit_reached') });
      events.emit('dial:end', 'gateway', dial, { ms: 1, error: error('connection_refused') });
    }
  });
  const count = (code: string) => records.filter((record) => record.error === code).length;
  assert.deepEqual([count('connection_limit_reached'), count('connection_refused')], [10, 50]);
  const { where, count: leftOut } = records.at(-1);
  assert.deepEqual([where, leftOut], ['dials of tenant default', 40]);
});

test('dials that a rule refuses are logged a few at a time, and those of another tenant beside them', () => {
  const error = new DialError('destination_ip_prohibited', 'the policy of tenant a refuses 10.0.0.1');
  const records = logged((events) => {
    for (let i = 0; i < 50; i++) events.emit('dial:end', 'gateway', { ...dial, tenant: 'a' }, { ms: 1, error });
    events.emit('dial:end', 'gateway', { ...dial, tenant: 'b' }, { ms: 1, error });
  });
  const count = (of: string) => records.filter(({ tenant }) => tenant === of).length;
  assert.deepEqual([count('a'), count('b')], [10, 1]);
});

test('a flapping connection is logged a few times, then counted, and its latest state is logged last', (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { logger, records } = recorder();
  const events = planeEvents();
  const end = logEvents(events, logger);
  for (let i = 0; i < 100; i++) {
    events.emit('registry', 'down', `reset ${i}`);
    events.emit('registry', 'up', 'again');
    events.emit('server:failure', '10.0.0.1:8091', 'connecting', new Error('refused'));
    events.emit('peer:failure', 'h1', 'y:1', new Error('refused'));
  }
  events.emit('server:failure', '10.0.0.2:8091', 'connecting', new Error('refused'));
  assert.equal(records().length, 31);
  context.mock.timers.tick(TELEMETRY.logFlaps.windowMs);
  const later = records().slice(31);
  const shown = later.map(({ level, msg, of, count }) => [level, msg, of, count].filter((each) => each !== undefined));
  assert.deepEqual(shown, [
    ['warn', 'further lines were dropped', 'registry', 189],
    ['info', 'registry is up'],
    ['warn', 'further lines were dropped', 'server 10.0.0.1:8091', 89],
    ['warn', 'server connection failed'],
    ['warn', 'further lines were dropped', 'hub h1', 89],
    ['warn', 'hub cannot be reached'],
  ]);
  events.emit('registry', 'down', 'a minute later');
  assert.equal(records().length, 38);
  end();
  assert.equal(records().length, 38);
});

test('an agent that keeps reconnecting is limited by its name, whatever the ids of its sessions', () => {
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const session = (agentId: string, sessionId: string): SessionInfo => {
    return { sessionId, agentId, hubId: 'h1', tenant: 't', identifiers, protocol: 'link', remote: 'r:1', since: 0 };
  };
  const lines = logged((events) => {
    for (let i = 0; i < 50; i++) {
      events.emit('session:open', session('a1', `s${i}`));
      events.emit('session:close', session('a1', `s${i}`), 'gone');
    }
    events.emit('session:open', session('a2', 'other'));
  });
  assert.deepEqual(
    lines.slice(10).map(({ msg, agent, session, of, count }) => [msg, agent ?? of, session ?? count]),
    [
      ['session opened', 'a2', 'other'],
      ['further lines were dropped', 'agent t/a1', 89],
      ['session closed', 'a1', 's49'],
    ],
  );
});

test('lines below the log level are not counted as dropped', () => {
  const emit = (events: PlaneEvents) => {
    for (let i = 0; i < 50; i++) {
      events.emit('peer:open', 'h1', 'y:1');
      events.emit('peer:close', 'h1', 'y:1', 'ping');
    }
  };
  assert.deepEqual(logged(emit, 1), []);
  assert.equal(logged(emit).length, 12);
});
