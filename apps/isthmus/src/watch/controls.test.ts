import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { styleOf } from '../output/style.ts';
import { AT_START, type Controls, chosen, keysIn, pressed } from './controls.ts';
import type { DialView } from './dial.ts';
import { footer } from './screen.ts';

/** What is set after these keys, or undefined if one of them ended the screen. */
function after(keys: string, from: Controls = AT_START): Controls | undefined {
  return keysIn(keys).reduce<Controls | undefined>((controls, key) => controls && pressed(controls, key), from);
}

describe('keys of the live screen', () => {
  it('quit, pause, filter and sort', () => {
    assert.deepEqual([after('q'), after('\u0003'), after('/q\u0003')], [undefined, undefined, undefined]);
    assert.deepEqual([after('p')?.paused, after(' ')?.paused, after('pp')?.paused], [true, true, false]);
    assert.deepEqual([after('f')?.onlyFailed, after('ff')?.onlyFailed], [true, false]);
    assert.deepEqual([after('s')?.dials, after('ss')?.dials], ['newest', 'slowest']);
    assert.deepEqual([after('m')?.members, after('mmmm')?.members], ['dials', 'name']);
    assert.deepEqual([after('?')?.help, after('hh')?.help], [true, false]);
  });

  it('type a filter, which holds at once and can be taken back', () => {
    assert.deepEqual([after('/ab')?.filter, after('/ab')?.typing], ['ab', 'ab']);
    assert.deepEqual([after('/q s\r')?.filter, after('/ab\r')?.typing], ['qs', undefined]);
    assert.equal(after('/ab\u007f\r')?.filter, 'a');
    assert.deepEqual([after('/ab\u001b')?.filter, after('/ab\rf\u001b')], ['', AT_START]);
    assert.equal(after(`/${'x'.repeat(1000)}`)?.filter.length, 80);
  });

  it('are not the letters of arrows and function keys', () => {
    assert.deepEqual(keysIn('\u001b[Aq\u001b[15~\u001bOPp\u001b'), ['q', 'p', '\u001b']);
    assert.deepEqual(after('\u001b[A\u001bOs'), AT_START);
  });

  it('are named in the last line, with what is set', () => {
    const line = (keys: string) => footer(after(keys) ?? AT_START, { columns: 80 }, styleOf(false));
    assert.equal(line(''), 'q quit  p pause  / filter  f failed  s slowest  m by name  ? help');
    assert.match(line('pf/10.0\rs'), /^PAUSED, only failed, only with 10\.0 {3}q quit/);
    assert.equal(line('/10.'), 'Only dials with: 10._   Enter keeps it, Esc shows all');
    assert.ok(line(`/${'x'.repeat(200)}\r`).length <= 80);
  });
});

describe('a filter', () => {
  const dial = {
    destination: '10.0.0.5:10250',
    tenant: 'Acme',
    agent: 'a',
    hub: 'h',
    gateway: 'g',
    caller: 'c',
    dial: 'd',
  };
  const fine = { ...dial, ok: true } as DialView;
  const failed = { ...dial, ok: false, error: { code: 'dns_error', text: 'no such host' } } as DialView;

  it('looks at every name of a dial, in any case', () => {
    const finds = (filter: string) => [fine, failed].map((each) => chosen({ ...AT_START, filter })?.(each));
    assert.deepEqual(finds('acme'), [true, true]);
    assert.deepEqual(finds('DNS_'), [false, true]);
    assert.deepEqual(finds('nowhere'), [false, false]);
    assert.equal(chosen(AT_START), undefined);
  });

  it('can ask for failed dials only', () => {
    assert.deepEqual([fine, failed].map(chosen({ ...AT_START, onlyFailed: true }) ?? (() => true)), [false, true]);
  });
});
