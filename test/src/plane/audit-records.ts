import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { AuditRecord } from '@isthmus/telemetry';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { ROOT } from '../harness/index.ts';

// In a branch of the schema, `required` and `false` name properties that its main part describes.
const ajv = new Ajv2020({ strict: true, strictRequired: false, allErrors: true });
const validate = ajv.compile<AuditRecord>(JSON.parse(readFileSync(`${ROOT}docs/audit.schema.json`, 'utf8')));

/** Returns why a value is not an audit record, or undefined if it is one. */
export function invalid(value: unknown): string | undefined {
  return validate(value) ? undefined : ajv.errorsText(validate.errors);
}

/** Reads a file's records, each of which must be valid. Leaves out a last line that is not complete yet. */
export function readRecords(path: string): AuditRecord[] {
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => {
    const record = JSON.parse(line) as AuditRecord;
    assert.equal(invalid(record), undefined, line);
    return record;
  });
}
