import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAddress } from './options.ts';

const nobody = { username: '', password: '' };
const plain = { kind: 'standalone', primary: '', db: 0, tls: false, user: nobody, sentinelUser: nobody } as const;
const at = (...nodes: readonly [string, number][]) => nodes.map(([host, port]) => ({ host, port }));

test('a Redis URL is parsed into the kind of Redis, its address and the credentials', () => {
  const cases: readonly [string, object][] = [
    ['redis://h', { ...plain, seeds: at(['h', 6379]) }],
    ['redis://h:1/', { ...plain, seeds: at(['h', 1]) }],
    ['rediss://[::1]:1/2', { ...plain, tls: true, db: 2, seeds: at(['::1', 1]) }],
    ['redis://:p%40:q@h', { ...plain, user: { username: '', password: 'p@:q' }, seeds: at(['h', 6379]) }],
    [
      'redis+sentinel://u:p@a,b:1,[::1]/main/3?sentinel-username=s&sentinel-password=w%26',
      {
        ...plain,
        kind: 'sentinel',
        primary: 'main',
        db: 3,
        user: { username: 'u', password: 'p' },
        sentinelUser: { username: 's', password: 'w&' },
        seeds: at(['a', 26379], ['b', 1], ['::1', 26379]),
      },
    ],
    ['rediss+cluster://a,b:1', { ...plain, kind: 'cluster', tls: true, seeds: at(['a', 6379], ['b', 1]) }],
  ];
  for (const [url, address] of cases) assert.deepEqual(parseAddress(url), address, url);
});

test('anything but a Redis URL is rejected, and the error does not repeat it', () => {
  const cases: readonly [string, RegExp][] = [
    ['', /want redis:.*redis\+sentinel:.*redis\+cluster:/],
    ['http://u:hunter2@h', /want redis:/],
    ['redis://u:hunter2@a,b', /want redis:\/\/[^,]+; rediss for TLS$/],
    ['redis://u:hunter2@h:65536', /want redis:/],
    ['redis://%zz:hunter2@h', /want redis:/],
    ['redis://:hunter2@h?sentinel-password=hunter2', /want redis:/],
    ['redis+sentinel://:hunter2@a,b', /want redis\+sentinel:.*\/primary/],
    ['redis+sentinel://:hunter2@a/main?timeout=1', /want redis\+sentinel:/],
    ['redis+cluster://:hunter2@a/1', /want redis\+cluster:/],
  ];
  for (const [url, message] of cases) {
    const refused = (error: Error) => message.test(error.message) && !error.message.includes('hunter2');
    assert.throws(() => parseAddress(url), refused, url);
  }
});
