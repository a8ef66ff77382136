import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as kinds from './flag.ts';
import { parseFlags } from './parse.ts';

const table = kinds.topic('Test', {
  name: kinds.string('nobody', ''),
  'server-port': kinds.int(8090, ''),
  profiling: kinds.bool(false, ''),
  graceful: kinds.bool(true, ''),
  list: kinds.strings(['x'], '', { oldNames: [{ name: 'items', advice: 'use --list' }] }),
  wait: kinds.duration(1000, ''),
  v: kinds.level(4, '', { short: 'v' }),
  help: kinds.bool(false, '', { short: 'h' }),
  threshold: kinds.severity(2, ''),
  mode: kinds.oneOf(['', 'grpc', 'http-connect'])('', ''),
  count: kinds.countOrAll(2, ''),
  vmodule: kinds.moduleSpec('', '', { inert: 'no modules' }),
  trace: kinds.traceLocation('', '', { inert: 'no traces' }),
  id: kinds.string('', '', { unset: { from: (env) => env.ID || 'made', text: 'made' } }),
});

type Read = Partial<Record<keyof typeof table, unknown>>;

const GOOD: readonly [string, Read][] = [
  ['', {}],
  ['--name=a --server-port=1', { name: 'a', 'server-port': 1 }],
  ['--name a --server-port 1', { name: 'a', 'server-port': 1 }],
  ['--server-port -1', { 'server-port': -1 }],
  ['--name --profiling', { name: '--profiling' }],
  ['--name=', { name: '' }],
  ['--name=a=b', { name: 'a=b' }],
  ['--name=a --name=b', { name: 'b' }],
  ['--server_port=1', { 'server-port': 1 }],
  ['--profiling', { profiling: true }],
  ['--profiling=1', { profiling: true }],
  ['--graceful=false', { graceful: false }],
  ['--graceful=f --graceful', { graceful: true }],
  ['--list=a,b', { list: ['a', 'b'] }],
  ['--list=a --list b,c', { list: ['a', 'b', 'c'] }],
  ['--list="a,b",c', { list: ['a,b', 'c'] }],
  ['--list=[]', { list: [] }],
  ['--list=', { list: [] }],
  ['--list=[] --list=a', { list: ['a'] }],
  ['--items=a', { list: ['a'] }],
  ['--wait=1m', { wait: 60_000 }],
  ['-v 5', { v: 5 }],
  ['-v=5', { v: 5 }],
  ['-v5', { v: 5 }],
  ['-v -1', { v: -1 }],
  ['--v=5', { v: 5 }],
  ['-h', { help: true }],
  ['-hv5', { help: true, v: 5 }],
  ['-h=false', { help: false }],
  ['--threshold=1', { threshold: 1 }],
  ['--threshold=ERROR', { threshold: 2 }],
  ['--threshold=warning', { threshold: 1 }],
  ['--mode=grpc', { mode: 'grpc' }],
  ['--mode=', { mode: '' }],
  ['--count=3', { count: 3 }],
  ['--count=all', { count: 'all' }],
  ['--vmodule=a=1,b*=2', { vmodule: 'a=1,b*=2' }],
  ['--trace=server.go:10', { trace: 'server.go:10' }],
  ['--name=a --', { name: 'a' }],
];

test('valid command lines are read as pflag reads them', () => {
  const defaults = parseFlags(table, [], {}).values;
  assert.deepEqual(defaults, {
    name: 'nobody',
    'server-port': 8090,
    profiling: false,
    graceful: true,
    list: ['x'],
    wait: 1000,
    v: 4,
    help: false,
    threshold: 2,
    mode: '',
    count: 2,
    vmodule: '',
    trace: '',
    id: 'made',
  });
  for (const [line, wanted] of GOOD) {
    const { values, set } = parseFlags(table, line.split(' ').filter(Boolean), {});
    assert.deepEqual(values, { ...defaults, ...wanted }, line);
    assert.deepEqual([...set].sort(), Object.keys(wanted).sort(), line);
  }
});

const BAD: readonly [string, string][] = [
  ['--server-prt=1', '--server-prt: unknown flag; the nearest known one is --server-port'],
  ['--moed', '--moed: unknown flag; the nearest known one is --mode'],
  ['-x', '-x: unknown flag; the nearest known one is --v'],
  ['-server-port=1', '-server-port=1: unknown flag; the nearest known one is --server-port'],
  ['--=x', '"--=x": this is not a flag'],
  ['---x', '"---x": this is not a flag'],
  ['--name', '--name: its value is missing (string)'],
  ['-v', '--v: its value is missing (Level)'],
  ['-v=', '--v: bad value "": want a whole number'],
  ['-vh', '--v: bad value "h": want a whole number'],
  ['--server-port=abc', '--server-port: bad value "abc": want a whole number'],
  ['--server-port=', '--server-port: bad value "": want a whole number'],
  ['--profiling=yes', '--profiling: bad value "yes": want true or false'],
  ['--wait=5', '--wait: bad value "5": the unit is missing: write 10s, 1m30s or 100ms'],
  ['--list="a', '--list: bad value "\\"a": a closing quotation mark is missing'],
  ['--items="a', '--items: bad value "\\"a": a closing quotation mark is missing'],
  ['--threshold=FOO', '--threshold: bad value "FOO": want a whole number'],
  ['--mode=udp', '--mode: bad value "udp": want grpc or http-connect'],
  ['--count=0', '--count: bad value "0": want 1 or more, or all'],
  ['--vmodule=x', '--vmodule: bad value "x": want a list such as gateway=4,hub*=5'],
  ['--trace=zz', '--trace: bad value "zz": want a place such as server.go:234'],
  ['extra', '"extra": unexpected argument; flags begin with --'],
  ['--name=a -', '"-": unexpected argument; flags begin with --'],
  ['--profiling true', '"true": unexpected argument; write --profiling=true'],
  ['--name=a -- --server-port=1', '"--server-port=1": unexpected argument; flags begin with --'],
];

test('an invalid command line gives one line that names the flag', () => {
  for (const [line, message] of BAD) {
    assert.throws(() => parseFlags(table, line.split(' '), {}), { name: 'FlagError', message }, line);
  }
});

test('a flag wins over the environment, and the environment over a generated value', () => {
  assert.equal(parseFlags(table, [], { ID: 'e' }).values.id, 'e');
  assert.equal(parseFlags(table, [], { ID: '' }).values.id, 'made');
  assert.equal(parseFlags(table, ['--id=f'], { ID: 'e' }).values.id, 'f');
});

test('all flags without effect share one warning, and each old name gets its own', () => {
  const args = ['--vmodule=a=1', '--vmodule=b=1', '--trace=a.go:1', '--items=a', '--items=b', '--name=a'];
  assert.deepEqual(parseFlags(table, args, {}).warnings, [
    '--items is an old name: use --list',
    'these flags have no effect here: --vmodule (no modules), --trace (no traces)',
  ]);
});

test('names of Object.prototype are no flags', () => {
  for (const name of ['constructor', '__proto__', 'toString']) {
    assert.throws(() => parseFlags(table, [`--${name}=1`], {}), /unknown flag/);
  }
});
