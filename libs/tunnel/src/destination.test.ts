import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatDestination, type Prohibition, parseDestination, prohibitedBy } from './destination.ts';

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

/** As agents have it, which dial their loopback. */
const options = {
  ownPorts: [8093, 8094],
  ownAddresses: () => ['10.0.0.7', 'fd00::7'],
  lifted: ['loopback'] as Prohibition[],
};

const CASES: readonly [address: string, port: number, by: Prohibition | undefined][] = [
  ['127.0.0.1', 8094, 'own-ports'],
  ['127.9.9.9', 8093, 'own-ports'],
  ['::1', 8094, 'own-ports'],
  ['::', 8094, 'own-ports'],
  ['0.0.0.0', 8094, 'own-ports'],
  ['::ffff:127.0.0.1', 8094, 'own-ports'],
  ['::ffff:7f00:1', 8094, 'own-ports'],
  ['64:ff9b::7f00:1', 8094, 'own-ports'],
  ['::ffff:0:127.0.0.1', 8094, 'own-ports'],
  ['10.0.0.7', 8094, 'own-ports'],
  ['::ffff:10.0.0.7', 8094, 'own-ports'],
  ['fd00:0:0::7', 8093, 'own-ports'],
  ['127.0.0.1', 8095, undefined],
  ['10.0.0.8', 8094, undefined],
  ['169.254.1.1', 80, 'link-local'],
  ['::ffff:169.254.1.1', 80, 'link-local'],
  ['fe80::1%eth0', 80, 'link-local'],
  ['febf::1', 80, 'link-local'],
  ['fec0::1', 80, undefined],
  ['169.254.1.1%eth0', 80, 'link-local'],
  ['127.0.0.1%eth0', 8094, 'own-ports'],
  ['169.254.169.254%eth0', 80, 'metadata'],
  ['169.254.169.254', 80, 'metadata'],
  ['64:ff9b::a9fe:a9fe', 80, 'metadata'],
  ['::a9fe:a9fe', 80, 'metadata'],
  ['fd00:ec2::254', 80, 'metadata'],
  ['64:ff9b:1::a9fe:a9fe', 80, 'metadata'],
  ['::ffff:0:a9fe:a9fe', 80, 'metadata'],
  ['::ffff:1:a9fe:a9fe', 80, undefined],
  ['64:ff9b:1:ffff::7f00:1', 8094, 'own-ports'],
  ['64:ff9b:2::a9fe:a9fe', 80, undefined],
  ['2002:a9fe:a9fe::1', 80, 'metadata'],
  ['2002:a00:7::', 8094, 'own-ports'],
  ['2002:a00:8::a9fe:a9fe', 80, undefined],
  ['169.254.170.23', 80, 'metadata'],
  ['fd00:ec2::23', 80, 'metadata'],
  ['fd20:ce::254', 80, 'metadata'],
  ['fd00:42::42', 80, 'metadata'],
  ['fd00:ec2::253', 80, undefined],
  ['168.63.129.16', 443, 'metadata'],
  ['100.100.100.200', 80, 'metadata'],
  ['100.100.100.201', 80, undefined],
];

test('an address is judged by the host it reaches, however it is written', () => {
  const prohibited = prohibitedBy(options);
  for (const [address, port, by] of CASES) assert.equal(prohibited(address, port), by, `${address} ${port}`);
});

test('lifting a prohibition by its name lifts no other', () => {
  for (const lifted of ['own-ports', 'link-local', 'metadata'] as const) {
    const prohibited = prohibitedBy({ ...options, lifted: ['loopback', lifted] });
    for (const [address, port, by] of CASES) {
      assert.equal(prohibited(address, port), by === lifted ? undefined : by, `${address} ${port} without ${lifted}`);
    }
  }
});

test('all of loopback is prohibited where its name does not lift that', () => {
  const prohibited = prohibitedBy({ ...options, lifted: [] });
  const loopbacks = [
    '127.0.0.1',
    '127.255.0.1',
    '127.0.0.1%eth0',
    '0.0.0.0',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '64:ff9b::127.0.0.1',
    '::7f00:1',
  ];
  for (const address of loopbacks) assert.equal(prohibited(address, 1), 'loopback', address);
  for (const address of ['10.0.0.1', '128.0.0.1', 'fd00::1']) assert.equal(prohibited(address, 1), undefined, address);
});
