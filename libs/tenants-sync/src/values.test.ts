import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SYNC } from './defaults.ts';
import { ValueKeeper } from './values.ts';

const base64 = (text: string) => Buffer.from(text).toString('base64');
const secret = (namespace: string, name: string, data: Readonly<Record<string, string>>, annotations = {}) => ({
  metadata: { namespace, name, annotations },
  data: Object.fromEntries(Object.entries(data).map(([key, value]) => [key, base64(value)])),
});

describe('what is kept of secrets and config maps', () => {
  it('are the values of the keys that are asked for, byte for byte', () => {
    const { values } = new ValueKeeper('secret', ['a']).keep(secret('n', 's', { a: 'ä\0', b: 'x' }));
    assert.deepEqual([...values.keys()], ['a']);
    assert.equal(Buffer.from(values.get('a') as string, 'latin1').toString(), 'ä\0');
  });

  it('are texts and bytes of a config map', () => {
    const { values } = new ValueKeeper('config map').keep({
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
    const { values } = new ValueKeeper('secret').keep(secret('n', 's', { a: 'x'.repeat(SYNC.valueBytes + 1), b: 'x' }));
    assert.match(String(values.get('a')), /at most 262144 are read/);
    assert.equal(values.get('b'), 'x');
  });

  it('is no more of a namespace than its share, whatever its owner labels, and others have theirs', () => {
    const keeper = new ValueKeeper('secret');
    const keep = (object: ReturnType<typeof secret>) => keeper.keep(object);
    const full = { a: 'x'.repeat(SYNC.valueBytes) };
    const most = SYNC.namespaceBytes / SYNC.valueBytes;
    for (let index = 0; index < most; index++)
      assert.equal(typeof keep(secret('n', `s${index}`, full)).values.get('a'), 'string');
    assert.match(String(keep(secret('n', 'more', { a: 'x' })).values.get('a')), /what is labelled in n has more than/);
    assert.equal(keep(secret('other', 's', { a: 'x' })).values.get('a'), 'x');
    keep(secret('n', 's0', {}));
    assert.equal(keep(secret('n', 'more', full)).values.get('a'), full.a);
    assert.equal(typeof keep(secret('n', 'next', full)).values.get('a'), 'object');
    keeper.forget('n/s1');
    assert.equal(keep(secret('n', 'next', full)).values.get('a'), full.a);
  });

  it('is no more than so many keys and allowed namespaces of a namespace', () => {
    const keeper = new ValueKeeper('secret');
    const many = Object.fromEntries(Array.from({ length: 6000 }, (_, index) => [`k${index}`, '']));
    const names = Array.from({ length: 6000 }, (_, index) => `n${index}`).join();
    const sizes = [many, many, {}].map((data, index) => {
      const annotations = index === 2 ? { 'isthmus.dev/allow-tenants-of': names } : {};
      const { values, allows } = keeper.keep(secret('n', `s${index}`, data, annotations));
      return values.size + allows.length;
    });
    assert.deepEqual(sizes, [6001, 3999, 0]);
    assert.equal(keeper.keep(secret('other', 's', { a: 'x' })).values.get('a'), 'x');
    keeper.forget('n/s0');
    assert.equal(keeper.keep(secret('n', 's2', {}, { 'isthmus.dev/allow-tenants-of': names })).allows.length, 6000);
  });

  it('says so if keys or allowed namespaces of it are not kept', () => {
    const keeper = new ValueKeeper('secret', ['k', 'l']);
    const allowing = (bytes: number, names: number) => ({
      'isthmus.dev/allow-tenants-of': Array(names).fill('x'.repeat(bytes)).join(),
    });
    const unkept = (data: Readonly<Record<string, string>>, annotations: object) =>
      keeper.keep(secret('n', 's', data, annotations)).unkept;
    const share = /what is labelled in n has more than 10000 keys and allowed namespaces or 4194304 bytes/;
    assert.equal(unkept({ k: '', other: '' }, allowing(1, SYNC.namespaceEntries - 1)), undefined);
    assert.match(`${unkept({ k: '', l: '' }, allowing(1, SYNC.namespaceEntries - 1))}`, share);
    assert.match(`${unkept({}, allowing(1, SYNC.namespaceEntries + 1))}`, share);
    assert.match(`${unkept({}, allowing(SYNC.namespaceBytes + 1, 1))}`, share);
    keeper.keep(secret('n', 'full', {}, allowing(1, SYNC.namespaceEntries)));
    keeper.forget('n/s');
    assert.equal(unkept({}, {}), undefined);
  });

  it('says which namespaces a secret allows', () => {
    const { allows } = new ValueKeeper('secret').keep(secret('n', 's', {}, { 'isthmus.dev/allow-tenants-of': 'a, b' }));
    assert.deepEqual(allows, ['a', 'b']);
  });
});
