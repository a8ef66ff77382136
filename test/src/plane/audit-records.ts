import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { AuditRecord } from '@isthmus/telemetry';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { ROOT } from '../harness/index.ts';

// `required` and `false` in a branch name what the main part of the schema describes.
const ajv = new Ajv2020({ strict: true, strictRequired: false, allErrors: true });
const validate = ajv.compile<AuditRecord>(JSON.parse(readFileSync(`${ROOT}docs/audit.schema.json`, 'utf8')));

/** Why a value is no audit record; undefined when it is one. */
export function invalid(value: unknown): string | undefined {
  return validate(value) ? undefined : ajv.errorsText(validate.errors);
}

/** The records of a file, each of which must be valid; a line that is not whole yet is none. */
export function readRecords(path: string): AuditRecord[] {
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => {
    const record = JSON.parse(line) as AuditRecord;
    assert.equal(invalid(record), undefined, line);
    return record;
  });
}
