import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatDestination, parseDestination } from './destination.ts';

const good: [text: string, host: string, port: number][] = [
  ['10.0.0.1:443', '10.0.0.1', 443],
  ['kubelet-1.internal:10250', 'kubelet-1.internal', 10250],
  ['[2001:db8::1]:443', '2001:db8::1', 443],
  ['[fe80::1%eth0]:1', 'fe80::1%eth0', 1],
  ['[::]:65535', '::', 65535],
  ['under_score:80', 'under_score', 80],
];
for (const [text, host, port] of good) {
  test(`${text} is a destination`, () => {
    assert.deepEqual(parseDestination(text), { host, port });
    assert.equal(formatDestination({ host, port }), text);
  });
}

const bad = [
  '',
  ':443',
  'host',
  'host:',
  'host:0',
  'host:65536',
  'host:443x',
  '::1:443',
  '[::1]',
  '[nonsense]:1',
  'http://host:80/',
];
bad.push('host:80/path', 'user@host:80', 'two words:80', `${'x'.repeat(254)}:80`, 'host:-1', 'a\r\nb:80');
for (const text of bad) {
  test(`${JSON.stringify(text).slice(0, 40)} is not a destination`, () => {
    assert.throws(() => parseDestination(text), { name: 'DialError', code: 'http_request_error' });
  });
}
