import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodeDataHead, decodePacket, encodePacket, type Packet } from './codec.ts';
import { Packet as GeneratedPacket, PacketType as GeneratedType } from './gen/konnectivity/packet.ts';
import { AgentServiceDefinition, ProxyServiceDefinition } from './gen/konnectivity/services.ts';
import { PacketError } from './wire.ts';

function hex(text: string): Buffer {
  return Buffer.from(text.replaceAll(' ', ''), 'hex');
}

const MAX = 2n ** 63n - 1n;
const MIN = -(2n ** 63n);
const ALL_ONES = 'ff ff ff ff ff ff ff ff ff 01';

/** Packets and their bytes, written by hand from the specification of the encoding. */
const VECTORS: readonly [name: string, packet: Packet, bytes: string][] = [
  [
    'DIAL_REQ without type',
    { type: 'DIAL_REQ', protocol: 'tcp', address: 'a:1', random: 5n },
    '12 0c 0a03746370 1203613a31 1805',
  ],
  ['DIAL_REQ with all defaults', { type: 'DIAL_REQ', protocol: '', address: '', random: 0n }, '12 00'],
  [
    'DIAL_REQ with a negative random',
    { type: 'DIAL_REQ', protocol: '', address: '', random: -1n },
    `12 0b 18 ${ALL_ONES}`,
  ],
  ['DIAL_RSP', { type: 'DIAL_RSP', error: '', connectID: 1n, random: 300n }, '0801 1a 05 1001 18ac02'],
  ['DIAL_RSP with an error', { type: 'DIAL_RSP', error: 'é', connectID: 0n, random: 1n }, '0801 1a 06 0a02c3a9 1801'],
  ['CLOSE_REQ', { type: 'CLOSE_REQ', connectID: 127n }, '0802 2a 02 087f'],
  ['CLOSE_REQ of 128', { type: 'CLOSE_REQ', connectID: 128n }, '0802 2a 03 088001'],
  ['CLOSE_RSP', { type: 'CLOSE_RSP', error: 'x', connectID: 2n }, '0803 32 05 0a0178 1002'],
  ['DATA', { type: 'DATA', connectID: 1n, error: '', data: hex('68 69') }, '0804 22 06 0801 1a026869'],
  ['DATA of nothing', { type: 'DATA', connectID: 1n, error: '', data: hex('') }, '0804 22 02 0801'],
  ['DATA with an error', { type: 'DATA', connectID: 0n, error: 'e', data: hex('00') }, '0804 22 06 120165 1a0100'],
  [
    'DATA of the last small id',
    { type: 'DATA', connectID: 2n ** 31n - 1n, error: '', data: hex('') },
    '0804 22 06 08ffffffff07',
  ],
  [
    'DATA of the first large id',
    { type: 'DATA', connectID: 2n ** 31n, error: '', data: hex('') },
    '0804 22 06 088080808008',
  ],
  ['DIAL_CLS of the greatest int64', { type: 'DIAL_CLS', random: MAX }, '0805 3a 0a 08 ffffffffffffffff7f'],
  ['DIAL_CLS of the least int64', { type: 'DIAL_CLS', random: MIN }, '0805 3a 0b 08 80808080808080808001'],
  ['DRAIN', { type: 'DRAIN' }, '0806 42 00'],
];

/** Other encodings that a peer may send. */
const TOLERATED: readonly [name: string, bytes: string, packet: Packet][] = [
  ['no bytes at all are a DIAL_REQ', '', { type: 'DIAL_REQ', protocol: '', address: '', random: 0n }],
  ['an explicit type 0', '0800 12 02 1805', { type: 'DIAL_REQ', protocol: '', address: '', random: 5n }],
  ['the payload before the type', '2a 02 0801 0802', { type: 'CLOSE_REQ', connectID: 1n }],
  ['the last of two types', '0804 0802 2a 02 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  ['the last of two members of the oneof', '0802 22 02 0807 2a 02 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  [
    'a member that another came between starts anew',
    '0803 32 02 1007 2a 00 32 03 0a0178',
    { type: 'CLOSE_RSP', error: 'x', connectID: 0n },
  ],
  [
    'a member that comes twice is merged',
    '0803 32 02 1007 32 03 0a0178',
    { type: 'CLOSE_RSP', error: 'x', connectID: 7n },
  ],
  ['a missing payload has defaults', '0804', { type: 'DATA', connectID: 0n, error: '', data: hex('') }],
  ['DRAIN without payload', '0806', { type: 'DRAIN' }],
  ['a varint with padding', '0802 2a 03 088100', { type: 'CLOSE_REQ', connectID: 1n }],
  ['an unknown varint', '0802 48ac02 2a 02 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  ['an unknown fixed64', '0802 49 0102030405060708 2a 02 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  ['an unknown string', '0802 4a 03 616263 2a 02 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  ['an unknown fixed32', '0802 4d 01020304 2a 02 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  [
    'an unknown group with a group inside',
    '0802 4b 5b 0801 5c 0a0178 4c 2a 02 0801',
    { type: 'CLOSE_REQ', connectID: 1n },
  ],
  ['an unknown field of the payload', '0802 2a 05 7a0178 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  ['a known field of another wire type is unknown', '0802 2a 07 0d01020304 0801', { type: 'CLOSE_REQ', connectID: 1n }],
  ['a large field number', '0802 f8ffffff0f 01 2a 02 0801', { type: 'CLOSE_REQ', connectID: 1n }],
];

const REFUSED: readonly [name: string, bytes: string, message: RegExp][] = [
  ['an unknown type', '0807', /packet type 7 is unknown/],
  ['a negative type', `08 ${ALL_ONES}`, /packet type -1 is unknown/],
  ['DATA with the payload of CLOSE_REQ', '0804 2a 02 0801', /a DATA packet has the payload of CLOSE_REQ/],
  ['no type and the payload of DATA', '22 02 0801', /a DIAL_REQ packet has the payload of DATA/],
  ['a tag alone', '08', /truncated/],
  ['a length beyond the end', '0804 22 7f 0801', /truncated/],
  ['a length beyond the payload', '0804 22 03 1a0268 0801', /truncated/],
  ['a length of 63 bits', '0804 22 ffffffffffffffff7f', /truncated/],
  ['a truncated varint', '0802 2a 02 0880', /truncated/],
  ['a truncated fixed32', '4d 010203', /truncated/],
  ['an endless group', '4b 0801', /truncated/],
  ['a group that ends as another', '4b 54', /group 9 ends as 10/],
  ['an end without a group', '4c', /impossible wire type 4/],
  ['wire type 6', '4e', /impossible wire type 6/],
  ['deep groups', '4b'.repeat(40), /nest deeper/],
  ['field number 0', '00 01', /field number 0 is out of range/],
  ['a field number beyond the limit', '80808080 10 01', /field number 536870912 is out of range/],
  ['a varint of eleven bytes', `0802 2a 0c 08 ${'80'.repeat(10)} 00`, /longer than 64 bits/],
  ['a varint of 65 bits', `0802 2a 0b 08 ${'ff'.repeat(9)} 02`, /longer than 64 bits/],
  ['an error that is not UTF-8', '0803 32 03 0a01ff', /UTF-8/],
];

/** Converts what generated code reads to the codec's packets. */
function fromGenerated(bytes: Uint8Array): Packet {
  const { type, payload } = GeneratedPacket.decode(bytes);
  const [name] = Object.entries(GeneratedType).find(([, number]) => number === type) as [Packet['type'], number];
  return { type: name, ...payload?.value } as Packet;
}

function plain(packet: Packet): unknown {
  return packet.type === 'DATA' ? { ...packet, data: Buffer.from(packet.data).toString('hex') } : packet;
}

describe('encodePacket', () => {
  for (const [name, packet, bytes] of VECTORS) {
    it(`writes ${name} as the specification says`, () => {
      assert.equal(encodePacket(packet).toString('hex'), hex(bytes).toString('hex'));
    });
    it(`writes ${name} so that generated code reads it`, () => {
      assert.deepEqual(plain(fromGenerated(encodePacket(packet))), plain(packet));
    });
  }

  it('allocates exactly what it writes', () => {
    const data = Buffer.alloc(100_000, 7);
    const bytes = encodePacket({ type: 'DATA', connectID: 1n, error: '', data });
    assert.equal(bytes.length, 2 + 4 + 2 + 4 + data.length);
    assert.equal(bytes.buffer.byteLength, bytes.length);
  });
});

describe('decodePacket', () => {
  for (const [name, packet, bytes] of VECTORS) {
    it(`reads ${name}`, () => assert.deepEqual(plain(decodePacket(hex(bytes))), plain(packet)));
  }
  for (const [name, bytes, packet] of TOLERATED) {
    it(`accepts ${name}`, () => assert.deepEqual(plain(decodePacket(hex(bytes))), plain(packet)));
  }
  for (const [name, bytes, message] of REFUSED) {
    it(`rejects ${name}`, () => {
      assert.throws(
        () => decodePacket(hex(bytes)),
        (error) => error instanceof PacketError && message.test(error.message),
      );
    });
  }

  it('returns a view of the payload, not a copy', () => {
    const bytes = encodePacket({ type: 'DATA', connectID: 1n, error: '', data: Buffer.from('view') });
    const packet = decodePacket(bytes);
    assert.ok(packet.type === 'DATA' && packet.data.buffer === bytes.buffer);
    assert.ok(Buffer.isBuffer(packet.data));
  });

  it('reads from a plain Uint8Array that is part of a larger buffer', () => {
    const whole = new Uint8Array(hex(`ff ff 0804 22 06 0801 1a026869 ff`));
    const packet = decodePacket(whole.subarray(2, -1));
    assert.ok(packet.type === 'DATA');
    assert.equal(Buffer.from(packet.data).toString(), 'hi');
  });
});

describe('the services', () => {
  it('have the paths that Go peers call', () => {
    assert.equal(
      `/${ProxyServiceDefinition.fullName}/${ProxyServiceDefinition.methods.proxy.name}`,
      '/ProxyService/Proxy',
    );
    assert.equal(
      `/${AgentServiceDefinition.fullName}/${AgentServiceDefinition.methods.connect.name}`,
      '/AgentService/Connect',
    );
  });
});

it('the head of a DATA packet can be read before its data arrives, and only of a DATA packet', () => {
  for (const connectID of [0n, 1n, 2n ** 62n, -1n]) {
    const packet = { type: 'DATA', connectID, error: '', data: Buffer.alloc(100_000) } as const;
    const bytes = encodePacket(packet);
    const head = decodeDataHead(bytes.subarray(0, 64), bytes.length);
    assert.deepEqual(head, { connectID, length: bytes.length - packet.data.length });
    // Two more bytes follow the data.
    assert.equal(decodeDataHead(bytes.subarray(0, 64), bytes.length + 2), undefined);
  }
  const others: Packet[] = [
    { type: 'DIAL_REQ', protocol: 'tcp', address: 'x'.repeat(100), random: 1n },
    { type: 'CLOSE_RSP', connectID: 1n, error: 'x'.repeat(100) },
    { type: 'DATA', connectID: 1n, error: 'x'.repeat(100), data: Buffer.alloc(100) },
  ];
  for (const packet of others) {
    const bytes = encodePacket(packet);
    assert.equal(decodeDataHead(bytes.subarray(0, 64), bytes.length), undefined, packet.type);
  }
});
