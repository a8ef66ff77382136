import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { SyncReport } from '@isthmus/admission';
import { SYNC } from './defaults.ts';
import { Directory } from './directory.ts';
import { Report } from './report.ts';
import type { Verdict } from './sync.ts';

test('a report names what is wrong in each namespace, though one has more than a report holds', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const refused = (namespace: string, name: string): Verdict => ({
    source: { kind: 'Tenant', namespace, name, created: 0, generation: 1, atOnce: false, fields: {} },
    ...{ tenant: '', from: 'Tenant', fault: 'wrong', kept: false, writtenAt: 0 },
  });
  const many = Array.from({ length: SYNC.reportFaults + 10 }, (_, n) => refused('a-hostile', `t-${n}`));
  new Report(new Directory(dir), 'isthmus').write([...many, refused('good', 'one'), refused('good', 'two')], [], 0, 0);
  const { faults } = JSON.parse(readFileSync(join(dir, '.sync.json'), 'utf8')) as SyncReport;
  const named = faults.map(({ object }) => object);
  assert.equal(named.length, SYNC.reportFaults + 1);
  for (const name of ['one', 'two']) assert.ok(named.includes(`Tenant good/${name}`), name);
  assert.deepEqual(faults.at(-1), { object: 'isthmus tenants sync', fault: '12 more objects are not in force' });
});
