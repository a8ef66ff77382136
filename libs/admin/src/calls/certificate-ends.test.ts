import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { planeEvents } from '@isthmus/tunnel';
import { CertificateEnds } from './certificate-ends.ts';

const DAY_MS = 86_400_000;
const NOW = Date.parse('2026-05-01T12:00:00Z');

function textsOf(ends: CertificateEnds): string[] {
  return ends.notices(NOW).map(({ kind, text, todo }) => `${kind}: ${text}: ${todo}`);
}

describe('ends of certificates', () => {
  const events = planeEvents();
  const ends = new CertificateEnds(events);
  const uses = (days: number, of = 365) => {
    const about = { name: 'CN=hub, serial 1', validFrom: NOW + (days - of) * DAY_MS };
    events.emit('certificate', 'agents', NOW + days * DAY_MS, about);
    return textsOf(ends);
  };

  it('are announced two weeks before, and until the certificate is renewed', () => {
    assert.deepEqual(uses(14), []);
    assert.deepEqual(uses(13.5), [
      'certificate_expires: certificate CN=hub, serial 1 at the port for agents expires on 2026-05-15, in 13 days: renew its files in place',
    ]);
    assert.match(uses(1)[0] ?? '', /, in 24 h 0 min: /);
    assert.match(uses(1 / 48)[0] ?? '', /, in 30 min 0 s: /);
    assert.match(uses(1 / 86_400)[0] ?? '', /, in 1 s: /);
    assert.deepEqual(uses(-1), [
      'certificate_expired: certificate CN=hub, serial 1 at the port for agents expired on 2026-04-30: renew its files in place',
    ]);
    assert.deepEqual(uses(90), []);
  });

  it('are announced beside files that cannot be used as they are, each until it can', () => {
    const fault = new Error('ca.crt: certificate 2 of 3 is malformed: malformed DER');
    for (const files of ['ca.crt', 'tls.crt ca.crt']) events.emit('certificate:failure', 'agents', files, fault);
    const told =
      'certificate_fault: credential files at the port for agents: ca.crt: certificate 2 of 3 is malformed: malformed DER: mend or replace what it names: until then, what was in force before stays';
    assert.deepEqual(uses(90), [told]);
    events.emit('certificate:failure', 'agents', 'ca.crt', undefined);
    assert.deepEqual(uses(90), [told]);
    events.emit('certificate:failure', 'agents', 'tls.crt ca.crt', undefined);
    assert.deepEqual(uses(90), []);
  });

  it('are announced in the last fifth of short lives', () => {
    assert.deepEqual(uses(1, 2), []);
    assert.equal(uses(0.3, 2).length, 1);
  });

  it('are announced of certificates whose start is unknown', () => {
    events.emit('certificate', 'agents', NOW + 3 * DAY_MS);
    assert.match(
      textsOf(ends)[0] ?? '',
      /^certificate_expires: certificate at the port for agents expires on 2026-05-04, in 3 days/,
    );
  });
});
