import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { objectName } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import { Shares } from './shares.ts';
import { type Values, type ValuesObject, valueKeeper } from './values.ts';

const base64 = (text: string) => Buffer.from(text).toString('base64');
const secret = (namespace: string, name: string, data: Readonly<Record<string, string>>, annotations = {}) => ({
  metadata: { namespace, name, annotations },
  data: Object.fromEntries(Object.entries(data).map(([key, value]) => [key, base64(value)])),
});

/** Keeps what is there. */
function keeping(kind: 'secret' | 'config map' = 'secret', keys?: readonly string[]) {
  const failures = new Map<string, string | undefined>();
  const shares = new Shares({
    why: (namespace) => `${namespace} has more than its share`,
    short: (namespace, why) => void failures.set(namespace, why),
  });
  const keeps = valueKeeper(kind, keys);
  const keepNew = (object: ValuesObject, known = false) =>
    shares.keep(objectName(object), (part) => keeps(object, known, part));
  const keep = (object: ValuesObject): Values => {
    const kept = keepNew(object, true);
    assert.ok(kept);
    return kept;
  };
  return { shares, keepNew, keep, failures, forget: (name: string) => shares.forget(name) };
}

describe('what is kept of secrets and config maps', () => {
  it('are the values of the keys that are asked for, byte for byte', () => {
    const { values } = keeping('secret', ['a']).keep(secret('n', 's', { a: 'ä\0', b: 'x' }));
    assert.deepEqual([...values.keys()], ['a']);
    assert.equal(Buffer.from(values.get('a') as string, 'latin1').toString(), 'ä\0');
  });

  it('are texts and bytes of a config map', () => {
    const { values } = keeping('config map').keep({
      metadata: { name: 'c', namespace: 'n' },
      data: { a: 'x' },
      binaryData: { b: base64('y') },
    });
    assert.deepEqual(
      [...values],
      [
        ['b', 'y'],
        ['a', 'x'],
      ],
    );
  });

  it('is no value that is too large', () => {
    const { values, unkept } = keeping().keep(secret('n', 's', { a: 'x'.repeat(SYNC.valueBytes + 1), b: 'x' }));
    assert.equal(unkept, '"a": it has 262145 bytes: at most 262144 are read');
    assert.deepEqual([...values], [['b', 'x']]);
  });

  it('is no more of a namespace than its share, whatever its owner labels, and others have theirs', () => {
    const { keep, forget } = keeping();
    const full = { a: 'x'.repeat(SYNC.valueBytes) };
    const most = SYNC.namespaceBytes / SYNC.valueBytes;
    for (let index = 0; index < most; index++)
      assert.equal(typeof keep(secret('n', `s${index}`, full)).values.get('a'), 'string');
    assert.match(`${keep(secret('n', 'more', { a: 'x' })).unkept}`, /^n has more than its share$/);
    assert.equal(keep(secret('other', 's', { a: 'x' })).values.get('a'), 'x');
    keep(secret('n', 's0', {}));
    assert.equal(keep(secret('n', 'more', full)).values.get('a'), full.a);
    assert.equal(keep(secret('n', 'next', full)).values.get('a'), undefined);
    forget('n/s1');
    assert.equal(keep(secret('n', 'next', full)).values.get('a'), full.a);
  });

  it('is no more than so many keys and allowed namespaces of a namespace', () => {
    const { keep, forget } = keeping();
    const many = Object.fromEntries(Array.from({ length: 6000 }, (_, index) => [`k${index}`, '']));
    const names = Array.from({ length: 6000 }, (_, index) => `n${index}`).join();
    const sizes = [many, many, {}].map((data, index) => {
      const annotations = index === 2 ? { 'isthmus.dev/allow-tenants-of': names } : {};
      const { values, allows } = keep(secret('n', `s${index}`, data, annotations));
      return values.size + allows.length;
    });
    assert.deepEqual(sizes, [6001, 3999, 0]);
    assert.equal(keep(secret('other', 's', { a: 'x' })).values.get('a'), 'x');
    forget('n/s0');
    assert.equal(keep(secret('n', 's2', {}, { 'isthmus.dev/allow-tenants-of': names })).allows.length, 6000);
  });

  it('says so if keys or allowed namespaces of it are not kept', () => {
    const { keep } = keeping('secret', ['k', 'l']);
    const allowing = (bytes: number, names: number) => ({
      'isthmus.dev/allow-tenants-of': Array(names).fill('x'.repeat(bytes)).join(),
    });
    const unkept = (data: Readonly<Record<string, string>>, annotations: object) =>
      keep(secret('n', 's', data, annotations)).unkept;
    const share = /^n has more than its share$/;
    assert.equal(unkept({ k: '', other: '' }, allowing(1, SYNC.namespaceEntries - 1)), undefined);
    assert.match(`${unkept({ k: '', l: '' }, allowing(1, SYNC.namespaceEntries - 1))}`, share);
    assert.match(`${unkept({ k: '' }, allowing(1, SYNC.namespaceEntries + 1))}`, share);
    assert.match(`${unkept({ k: '' }, allowing(SYNC.namespaceBytes + 1, 1))}`, share);
    const all = keeping();
    all.keep(secret('n', 'full', {}, allowing(1, SYNC.namespaceEntries)));
    assert.equal(all.keep(secret('n', 's', {})).unkept, undefined);
  });

  it('is nothing of an object that comes when its namespace has no room, and says so of each that is missing', () => {
    const { keepNew, shares, failures, forget } = keeping();
    for (let index = 0; index < SYNC.namespaceEntries; index++) keepNew(secret('n', `s${index}`, {}));
    assert.deepEqual([failures, shares.missing('n/more')], [new Map(), undefined]);
    assert.equal(keepNew(secret('n', 'more', { a: 'x' })), undefined);
    const share = /^n has more than its share$/;
    assert.match(`${failures.get('n')}`, share);
    assert.match(`${shares.missing('n/more')}`, share);
    assert.equal(shares.missing('other/more'), undefined);
    assert.ok(!shares.freed);
    forget('n/s1');
    assert.ok(shares.freed, 'all is to be listed again');
    shares.listing();
    assert.match(`${shares.missing('n/more')}`, share, 'until the list is complete');
    assert.notEqual(keepNew(secret('n', 'more', {})), undefined);
    shares.listed();
    assert.deepEqual([failures.get('n'), shares.missing('n/more'), shares.freed], [undefined, undefined, false]);
  });

  it('may be all again once what had no room is gone, for which all is listed again', () => {
    const { keepNew, shares, forget } = keeping();
    for (let index = 0; index <= SYNC.namespaceEntries; index++) keepNew(secret('n', `s${index}`, {}));
    forget('other/s');
    assert.ok(!shares.freed);
    forget(`n/s${SYNC.namespaceEntries}`);
    assert.ok(shares.freed);
  });

  it('is more once others have less, for which all is listed again, and not for what changes in other namespaces', () => {
    const { keep, shares, forget } = keeping();
    const full = { a: 'x'.repeat(SYNC.valueBytes) };
    for (let index = 0; index <= SYNC.namespaceBytes / SYNC.valueBytes; index++) keep(secret('n', `s${index}`, full));
    keep(secret('other', 's', full));
    forget('other/s');
    keep(secret('n', 's0', full));
    assert.ok(!shares.freed);
    keep(secret('n', 's0', { a: 'x' }));
    assert.ok(shares.freed);
  });

  it('is nothing of an object without a key that is asked for: machines have secrets, too', () => {
    const { keepNew } = keeping('secret', ['tls.crt']);
    for (let index = 0; index <= SYNC.namespaceEntries; index++)
      assert.equal(keepNew(secret('n', `s${index}`, { value: 'x' }), index === 0), undefined);
    assert.equal(keepNew(secret('n', 'ca', { 'tls.crt': 'x' }))?.values.get('tls.crt'), 'x');
  });

  it('says which namespaces a secret allows', () => {
    const { allows } = keeping().keep(secret('n', 's', {}, { 'isthmus.dev/allow-tenants-of': 'a, b' }));
    assert.deepEqual(allows, ['a', 'b']);
  });
});
