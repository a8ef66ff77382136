import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { until } from '@isthmus/runtime/testing';
import { ConnectionError, HeadTooLong } from './frames.ts';
import { HpackDecoder, hpackEncode } from './hpack.ts';

const LIST = 65_536;

type Field = readonly [name: string, value: string];

function hex(text: string): Buffer {
  return Buffer.from(text.replaceAll(' ', ''), 'hex');
}

const REQUEST: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'http'],
  [':path', '/'],
  [':authority', 'www.example.com'],
];
const SECURE: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':path', '/index.html'],
  [':authority', 'www.example.com'],
  ['custom-key', 'custom-value'],
];
const THREE_REQUESTS = [REQUEST, [...REQUEST, ['cache-control', 'no-cache']], SECURE];

const DATE: Field = ['date', 'Mon, 21 Oct 2013 20:13:21 GMT'];
const LOCATION: Field = ['location', 'https://www.example.com'];
const COOKIE: Field = ['set-cookie', 'foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1'];
const THREE_RESPONSES = [
  [[':status', '302'], ['cache-control', 'private'], DATE, LOCATION],
  [[':status', '307'], ['cache-control', 'private'], DATE, LOCATION],
  [
    [':status', '200'],
    ['cache-control', 'private'],
    ['date', 'Mon, 21 Oct 2013 20:13:22 GMT'],
    LOCATION,
    ['content-encoding', 'gzip'],
    COOKIE,
  ],
];

/** Sections of one connection, as the RFC writes them out. */
const EXAMPLES: readonly [
  name: string,
  expected: readonly (readonly (readonly string[])[])[],
  ...sections: string[],
][] = [
  [
    'requests (C.3)',
    THREE_REQUESTS,
    '8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d',
    '8286 84be 5808 6e6f 2d63 6163 6865',
    '8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65',
  ],
  [
    'requests in Huffman code (C.4)',
    THREE_REQUESTS,
    '8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff',
    '8286 84be 5886 a8eb 1064 9cbf',
    '8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf',
  ],
  [
    'responses in Huffman code with a table of 256 bytes (C.6)',
    THREE_RESPONSES,
    '3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3',
    '4883 640e ffc1 c0bf',
    '88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07',
  ],
];

for (const [name, expected, ...sections] of EXAMPLES) {
  test(`the RFC's ${name} are read`, () => {
    const decoder = new HpackDecoder(LIST);
    assert.deepEqual(
      sections.map((section) => decoder.decode(hex(section))),
      expected,
    );
  });
}

const REFUSED: readonly [name: string, section: string, message: RegExp][] = [
  ['index 0', '80', /no entry 0/],
  ['an index beyond both tables', 'be', /no entry 62/],
  ['a name beyond both tables', '7f00 0161', /no entry 63/],
  ['a string that ends early', '0001 61 05 6162', /longer than its block/],
  ['a name without a value', '0001 61', /ends too early/],
  ['an integer without end', 'ff ff ff ff ff ff ff ff', /more than 28 bits/],
  ['an integer that stops', 'ff', /ends too early/],
  ['Huffman code filled with zeros', '0001 61 81 18', /HPACK/],
  ['Huffman code filled with a whole byte', '0001 61 82 1fff', /HPACK/],
  ['the end of a string in Huffman code', '0001 61 84 ffffffff', /HPACK/],
  ['a table larger than it may be', '3fe21f', /a table of/],
  ['a third size of the table', '202020', /more than two sizes of its table/],
];

for (const [name, section, message] of REFUSED) {
  test(`${name} is refused`, () => {
    const decode = () => new HpackDecoder(LIST).decode(hex(section));
    assert.throws(decode, (error) => error instanceof ConnectionError && message.test(error.message));
  });
}

test('of a section that unpacks to more than it may nothing is left but its entries in the table', () => {
  const decoder = new HpackDecoder(10_000);
  const entry = (name: string, length: number) =>
    Buffer.concat([Buffer.of(0x40), hpackEncode([[name, 'x'.repeat(length)]]).subarray(1)]);
  decoder.decode(entry('bomb', 3_000));
  assert.equal(decoder.decode(Buffer.alloc(3, 0x80 | 62))?.length, 3);
  assert.equal(decoder.decode(Buffer.concat([Buffer.alloc(4, 0x80 | 62), entry('late', 1)])), undefined);
  assert.deepEqual(decoder.decode(Buffer.of(0x80 | 62)), [['late', 'x']]);
  assert.throws(() => decoder.decode(Buffer.alloc(600, 0x80 | 62)), /a head of more than 20000 bytes/);
});

// Deno has no such flag.
test('nothing is kept of the chunk that a block was read with', { skip: 'Deno' in globalThis }, async () => {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  const decoder = new HpackDecoder(LIST);
  const read = () => {
    const chunk = new ArrayBuffer(1024);
    const block = Buffer.from(chunk);
    decoder.decode(block.subarray(0, hpackEncode([['a', 'b']]).copy(block)));
    return new WeakRef(chunk);
  };
  const chunk = read();
  await until(() => {
    collect();
    return chunk.deref() === undefined;
  }, 'its collection');
  assert.equal(decoder.decode(hpackEncode([['a', 'b']]))?.length, 1);
});

test('what is written is read again, whatever its length', () => {
  for (const length of [0, 1, 126, 127, 128, 254, 255, 256, 16_511]) {
    const fields: Field[] = [
      [':status', '200'],
      ['x', 'é'.repeat(length)],
    ];
    assert.deepEqual(new HpackDecoder(LIST).decode(hpackEncode(fields)), fields);
  }
});

test('fields beyond the most are left out, and of twice as many no more are read', () => {
  const decoder = new HpackDecoder(LIST, 4);
  const read = (count: number) => decoder.decode(Buffer.alloc(count, 0x80 | 62));
  // A literal that is indexed: `a: b`.
  assert.deepEqual(decoder.decode(Buffer.from([0x40, 1, 0x61, 1, 0x62])), [['a', 'b']]);
  assert.equal(read(4)?.length, 4);
  for (const count of [5, 8]) assert.equal(read(count), undefined);
  assert.deepEqual(read(1), [['a', 'b']], 'the table goes on');
  assert.throws(() => read(9), /a head of more than 8 fields/);
});

test('fields count too once their list is too long', () => {
  const fields = (count: number): Field[] => [
    ['x', 'y'.repeat(65_600)],
    ...Array.from({ length: count }, (): Field => ['a', 'b']),
  ];
  const decode = (count: number) => new HpackDecoder(65_536, 256).decode(hpackEncode(fields(count)));
  assert.equal(decode(511), undefined);
  assert.throws(() => decode(512), HeadTooLong);
  assert.throws(() => decode(600), HeadTooLong);
});
