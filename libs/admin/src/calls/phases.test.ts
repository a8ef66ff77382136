import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AttemptRecord, DialError, type DialLog, type DialOutcome } from '@isthmus/tunnel';
import { phasesOf } from './messages.ts';
import type { SeenDial } from './recent-dials.ts';

function attempt(given: Partial<AttemptRecord>): AttemptRecord {
  return {
    kind: 'first',
    sessionId: 's',
    agentId: 'a',
    hubId: 'h',
    start: 1000,
    ms: 20,
    outcome: 'established',
    ...given,
  };
}

function seen(outcome: DialOutcome, log: DialLog): SeenDial {
  return {
    role: 'gateway',
    id: 'd',
    tenant: 'default',
    destination: { host: 'x', port: 1 },
    start: 1000,
    caller: undefined,
    trial: undefined,
    traceparent: undefined,
    session: undefined,
    log,
    outcome,
  };
}

/** Formats each phase as `depth name start+ms`. */
function told(dial: SeenDial, firstByteMs?: number): string[] {
  return phasesOf({ ...dial, ...(firstByteMs !== undefined && { firstByteMs }) }).map(
    ({ depth, name, startMs, ms }) => `${depth} ${name} ${startMs}+${ms}`,
  );
}

test('hub and agent are centred in the phase around them, DNS is before connect, and the first byte is last', () => {
  const timing = { hubMs: 16, agentMs: 10, dnsMs: 3, connectMs: 5 };
  const dial = seen({ ms: 22, timing }, { attempts: [attempt({ start: 1001, ms: 20 })], parkedMs: 0 });
  assert.deepEqual(told(dial, 40), [
    '0 gateway 0+22',
    '1 attempt 1+20',
    '2 hub 3+16',
    '3 agent 6+10',
    '4 dns 7+3',
    '4 connect 10+5',
    '0 first_byte 22+40',
  ]);
});

test('times that an agent does not report are left out, and inner phases move up', () => {
  const dial = seen({ ms: 20, timing: { connectMs: 8 } }, { attempts: [attempt({})], parkedMs: 0 });
  assert.deepEqual(told(dial), ['0 gateway 0+20', '1 attempt 0+20', '2 connect 6+8']);
});

test('the times belong to the answered attempt, and each attempt shows its outcome', () => {
  const refused = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const dial = seen(
    { ms: 130, timing: { hubMs: 10 } },
    {
      parkedMs: 50,
      attempts: [
        attempt({ start: 1055, ms: 5, outcome: 'failed', error: refused }),
        attempt({ kind: 'retry', start: 1060, ms: 70, hubId: 'h2' }),
      ],
    },
  );
  assert.deepEqual(told(dial), ['0 gateway 0+130', '1 park 5+50', '1 attempt 55+5', '1 attempt 60+70', '2 hub 90+10']);
  const details = phasesOf(dial).map(({ detail }) => detail);
  assert.equal(details[2], 'first, agent a on hub h, session s, failed: connection_terminated, hub lost');
  assert.equal(details[3], 'retry, agent a on hub h2, session s, established');
});

test('a failed dial shows what is known about it', () => {
  const error = new DialError('destination_unavailable', 'No agent available');
  assert.deepEqual(phasesOf(seen({ ms: 2000, error }, { attempts: [], parkedMs: 2000 })), [
    { name: 'gateway', depth: 0, startMs: 0, ms: 2000, detail: 'destination_unavailable: No agent available' },
    { name: 'park', depth: 1, startMs: 0, ms: 2000, detail: 'no session to try' },
  ]);
});

test('a part that claims to be longer than the whole keeps its claimed length', () => {
  const dial = seen({ ms: 20, timing: { hubMs: 30 } }, { attempts: [attempt({})], parkedMs: 0 });
  assert.deepEqual(told(dial), ['0 gateway 0+20', '1 attempt 0+20', '2 hub 0+30']);
});
