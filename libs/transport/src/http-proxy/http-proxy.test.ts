import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseDestination } from '@isthmus/tunnel';
import { proxyFromEnvironment } from './http-proxy.ts';

/** Each answer is what Go's `httpproxy.FromEnvironment().ProxyFunc()` gives for `https://` and the host. */
const EXEMPT: readonly (readonly [noProxy: string, exempt: readonly string[], proxied: readonly string[]])[] = [
  ['', ['localhost:1', '127.0.0.1:1', '127.8.8.8:1', '[::1]:1'], ['hub.example:1', '10.0.0.1:1']],
  ['*', ['hub.example:1', '10.0.0.1:1', '[2001:db8::1]:1'], []],
  ['a.example, *', ['hub.example:1'], []],
  ['hub.example', ['hub.example:1', 'HUB.example:1', 'a.hub.example:1'], ['ahub.example:1', 'example:1', '10.0.0.1:1']],
  ['.hub.example', ['a.hub.example:1', 'b.a.hub.example:1'], ['hub.example:1']],
  ['*.hub.example', ['a.hub.example:1'], ['hub.example:1']],
  [' HUB.Example ,b.example', ['hub.example:1', 'b.example:1'], ['c.example:1']],
  ['hub.example:8091', ['hub.example:8091', 'a.hub.example:8091'], ['hub.example:8132']],
  ['10.0.0.0/8', ['10.9.8.7:1'], ['11.0.0.1:1', '[2001:db8::1]:1', 'hub.example:1', '10.example:1']],
  ['10.1.2.3/8', ['10.9.8.7:1'], ['11.0.0.1:1']],
  ['10.0.0.1', ['10.0.0.1:1'], ['10.0.0.10:1', '110.0.0.1:1']],
  ['10.0.0.1:8091', ['10.0.0.1:8091'], ['10.0.0.1:8132']],
  ['2001:db8::/32', ['[2001:db8::1]:1'], ['[2001:db9::1]:1', '10.0.0.1:1']],
  ['2001:db8::1', ['[2001:db8::1]:1', '[2001:db8:0:0::1]:1'], ['[2001:db8::2]:1']],
  ['[2001:db8::1]:8091', ['[2001:db8::1]:8091'], ['[2001:db8::1]:8132']],
  [',, :8091,10.0.0.0/99,10.0.0.0/x,/', [], ['hub.example:8091', '10.0.0.1:8091']],
  [
    '10.0.0.0/,10.0.0.0/ 8,10.0.0.0/0x8,10.0.0.0/+8,10.0.0.0/8.0,::/',
    [],
    ['10.0.0.1:1', '11.0.0.1:1', '[2001:db8::1]:1'],
  ],
  ['*.', [], ['hub.example:1']],
  ['10.0', [], ['10.0.0.1:1']],
];

for (const [list, exempt, proxied] of EXEMPT) {
  test(`NO_PROXY=${list}`, () => {
    const proxyFor = proxyFromEnvironment({ HTTPS_PROXY: 'http://proxy.example:3128', NO_PROXY: list });
    const via = (host: string) => proxyFor?.(parseDestination(host))?.name;
    for (const host of exempt) assert.equal(via(host), undefined, host);
    for (const host of proxied) assert.equal(via(host), 'http://proxy.example:3128', host);
  });
}

const HUB = { host: 'hub.example', port: 8091 };

test('HTTPS_PROXY and NO_PROXY count before the same names in lower case, and an empty one as unset; HTTP_PROXY does not count', () => {
  const via = (env: Record<string, string>) => proxyFromEnvironment(env)?.(HUB)?.name;
  assert.equal(via({ HTTPS_PROXY: 'http://upper', https_proxy: 'http://lower' }), 'http://upper:80');
  assert.equal(via({ HTTPS_PROXY: '', https_proxy: 'http://lower' }), 'http://lower:80');
  assert.equal(via({ HTTP_PROXY: 'http://plain', http_proxy: 'http://plain', ALL_PROXY: 'http://all' }), undefined);
  assert.equal(via({ https_proxy: 'http://lower', no_proxy: '*' }), undefined);
  assert.equal(via({ https_proxy: 'http://lower', NO_PROXY: 'other.example', no_proxy: '*' }), 'http://lower:80');
});

test("a proxy's URL gives its address, its credentials, and a name without them", () => {
  const of = (HTTPS_PROXY: string) => proxyFromEnvironment({ HTTPS_PROXY })?.(HUB);
  const plain = { host: 'proxy.example', port: 3128, secure: false, name: 'http://proxy.example:3128' };
  assert.deepEqual(of('http://proxy.example:3128'), plain);
  assert.deepEqual(of('proxy.example:3128/'), plain);
  assert.deepEqual(of('http://us%40er:p%3As%2Fs@proxy.example:3128'), { ...plain, credentials: 'us@er:p:s/s' });
  assert.deepEqual(of('user@proxy.example:3128'), { ...plain, credentials: 'user:' });
  assert.deepEqual(of('https://[2001:db8::1]'), {
    host: '2001:db8::1',
    port: 443,
    secure: true,
    name: 'https://[2001:db8::1]:443',
  });
});

test('a proxy that cannot be used is an error that does not show its password', () => {
  for (const HTTPS_PROXY of [
    'socks5://u:geheim@proxy.example:1080',
    'http://u:geheim@',
    'http://u:geheim%zz@proxy.example',
    '::geheim',
    'http://user:12345/geheim@proxy.example:3128',
    'http://12345?geheim@proxy.example:3128',
    'http://user:12345#geheim@proxy.example:3128',
    'http://proxy.example:3128/geheim',
  ]) {
    assert.throws(
      () => proxyFromEnvironment({ HTTPS_PROXY }),
      (error: Error) => {
        assert.match(error.message, /HTTPS_PROXY/);
        assert.doesNotMatch(`${error.stack}`, /12345/);
        assert.doesNotMatch(`${error.stack}`, /geheim/);
        return true;
      },
    );
  }
});
