import assert from 'node:assert/strict';
import { test } from 'node:test';
import { beginning, server } from '../exposition/testing.ts';

const DROPPED = 'isthmus_audit_dropped_total';

for (const role of ['gateway', 'hub'] as const) {
  test(`a ${role} counts lost audit records, starting at 0`, async () => {
    const { events, metrics } = server({ role });
    assert.deepEqual(await beginning(metrics, DROPPED), { '{sink="log"}': 0, '{sink="otlp"}': 0 });
    events.emit('audit:dropped', 'log', 3);
    events.emit('audit:dropped', 'otlp', 500);
    assert.deepEqual(await beginning(metrics, DROPPED), { '{sink="log"}': 3, '{sink="otlp"}': 500 });
  });
}
