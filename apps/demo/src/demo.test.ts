import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dialLine, parseOptions, readDial, type SeenDial } from './demo.ts';

const ESTABLISHED = {
  level: 'info',
  time: '2026-08-01T10:20:30.456Z',
  name: 'proxy-server',
  destination: '127.0.0.1:8080',
  agent: 'agent',
  ms: 3.2,
  role: 'gateway',
  dial: '0123456789abcdef',
  tenant: 'default',
  caller: 'CN=demo-caller',
  via: 'http-connect',
  session: 's',
  hub: 'server',
  msg: 'dial established',
};

test('an established dial is one line: when, who, where to, through whom, how long', () => {
  const dial = readDial(JSON.stringify(ESTABLISHED)) as SeenDial;
  assert.match(
    dialLine(dial, 'server'),
    /^\d\d:\d\d:30\.456 {2}CN=demo-caller \(http-connect\) at server → 127\.0\.0\.1:8080 through agent at server in 3\.2 ms$/,
  );
});

test('a failed dial shows the reason', () => {
  const { agent: _agent, hub: _hub, ...rest } = ESTABLISHED;
  const failed = { ...rest, msg: 'dial failed', error: 'destination_unavailable', text: 'No agent available' };
  const dial = readDial(JSON.stringify(failed)) as SeenDial;
  assert.match(
    dialLine(dial, 'gateway-1'),
    /at gateway-1 → 127\.0\.0\.1:8080 failed after 3\.2 ms: destination_unavailable, No agent available$/,
  );
});

test('the same dial in the log of the hub or agent is not shown again', () => {
  for (const role of ['hub', 'agent']) assert.equal(readDial(JSON.stringify({ ...ESTABLISHED, role })), undefined);
});

test('lines about other events, and lines that are no JSON, are ignored', () => {
  assert.equal(readDial(JSON.stringify({ ...ESTABLISHED, msg: 'tunnel closed' })), undefined);
  assert.equal(readDial('{ not json'), undefined);
  assert.equal(readDial('Error: something'), undefined);
});

test('one server with everything inside is the default', () => {
  assert.deepEqual(parseOptions([]), { split: false });
});

test('--split starts separate tiers', () => {
  assert.deepEqual(parseOptions(['--split']), { split: true });
});

test('--help prints the usage, whatever the other arguments', () => {
  assert.equal(parseOptions(['--split', '--help']), undefined);
  assert.equal(parseOptions(['-h']), undefined);
});

test('an unknown argument gives one line that names it', () => {
  assert.throws(
    () => parseOptions(['--spilt']),
    /^Error: unknown argument --spilt: npm start takes --split and --help$/,
  );
});
