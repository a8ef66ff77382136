import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ADMISSION } from './defaults.ts';
import { readReport, type SyncReport } from './sync-report.ts';
import { problemText } from './tenant-file.ts';

const AT = Date.UTC(2026, 0, 1);
const report: SyncReport = {
  at: new Date(AT).toISOString(),
  plane: 'isthmus',
  tenants: 1,
  faults: [{ object: 'Cluster acme/prod', fault: 'there is no secret acme/prod-ca yet', kept: 'acme-prod' }],
};

/** What a member says at a time after the report was written. */
function said(text: string, ms = 0): string[] {
  return readReport(text)(AT + ms).flatMap(({ path, problems, kept }) =>
    problems.map((problem) => `${problemText(path, problem)}${kept ? ` (${kept})` : ''}`),
  );
}

describe('the report of a sync', () => {
  it('is what is wrong with its objects', () => {
    assert.deepEqual(said(JSON.stringify(report)), [
      'Cluster acme/prod: there is no secret acme/prod-ca yet (acme-prod)',
    ]);
  });

  it('says itself when it is too old', () => {
    const silent = { ...report, faults: [] };
    assert.deepEqual(said(JSON.stringify(silent), ADMISSION.syncSilentMs - 1), []);
    const [late] = said(JSON.stringify(silent), ADMISSION.syncSilentMs);
    assert.match(late ?? '', /^isthmus tenants sync: it has not written since 2026-01-01T00:00:00/);
  });

  it('may be of another version, or broken', () => {
    assert.match(said('{"at": 1}').join(), /a report of another version/);
    assert.match(said('{').join(), /what is no report/);
  });
});
