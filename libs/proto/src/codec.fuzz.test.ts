import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodePacket, encodePacket, type Packet } from './codec.ts';
import { Packet as GeneratedPacket, type PacketType as GeneratedType } from './gen/konnectivity/packet.ts';
import { PacketError } from './wire.ts';

const ROUNDS = 20_000;

/** mulberry32: small, and the same on every run. */
function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

type Random = ReturnType<typeof seeded>;

function int64(random: Random): bigint {
  const bits = BigInt(random(65));
  const value = (BigInt(random(2 ** 32)) << 32n) | BigInt(random(2 ** 32));
  return BigInt.asIntN(64, value & ((1n << bits) - 1n));
}

function text(random: Random): string {
  const alphabet = ['a', ':', '0', 'é', '€', '𝄞', '\u0000', '\ufeff'];
  return Array.from({ length: random(12) }, () => alphabet[random(alphabet.length)]).join('');
}

function bytes(random: Random, most: number): Buffer {
  return Buffer.from(Array.from({ length: random(most) }, () => random(256)));
}

function anyPacket(random: Random): Packet {
  switch (random(7)) {
    case 0:
      return { type: 'DIAL_REQ', protocol: text(random), address: text(random), random: int64(random) };
    case 1:
      return { type: 'DIAL_RSP', error: text(random), connectID: int64(random), random: int64(random) };
    case 2:
      return { type: 'CLOSE_REQ', connectID: int64(random) };
    case 3:
      return { type: 'CLOSE_RSP', error: text(random), connectID: int64(random) };
    case 4:
      return { type: 'DATA', connectID: int64(random), error: text(random), data: bytes(random, 400) };
    case 5:
      return { type: 'DIAL_CLS', random: int64(random) };
    default:
      return { type: 'DRAIN' };
  }
}

/** Bytes as the generated encoder writes them. */
function generated(packet: Packet): Buffer {
  const cases = {
    DIAL_REQ: [0, 'dialRequest'],
    DIAL_RSP: [1, 'dialResponse'],
    CLOSE_REQ: [2, 'closeRequest'],
    CLOSE_RSP: [3, 'closeResponse'],
    DATA: [4, 'data'],
    DIAL_CLS: [5, 'closeDial'],
    DRAIN: [6, 'drain'],
  } as const;
  const [type, $case] = cases[packet.type];
  const { type: _, ...value } = packet;
  const message = { type: type satisfies GeneratedType, payload: { $case, value } } as unknown as GeneratedPacket;
  return Buffer.from(GeneratedPacket.encode(message).finish());
}

function mutate(source: Buffer, random: Random): Buffer {
  const copy = Buffer.from(source);
  for (let changes = 1 + random(3); changes > 0 && copy.length > 0; changes--) copy[random(copy.length)] = random(256);
  const cut = copy.subarray(0, random(2) === 0 ? copy.length : random(copy.length + 1));
  return random(4) === 0 ? Buffer.concat([cut, bytes(random, 6)]) : cut;
}

function decodeOrRefuse(input: Buffer): void {
  try {
    const packet = decodePacket(input);
    assert.deepEqual(decodePacket(encodePacket(packet)), packet);
  } catch (error) {
    assert.ok(error instanceof PacketError, `${input.toString('hex')} threw ${error}`);
  }
}

describe('codec under random input', () => {
  it('writes the same bytes as generated code, and reads them back', () => {
    const random = seeded(1);
    for (let round = 0; round < ROUNDS; round++) {
      const packet = anyPacket(random);
      const encoded = encodePacket(packet);
      assert.deepEqual(decodePacket(encoded), packet);
      assert.ok(encoded.equals(generated(packet)), `${encoded.toString('hex')} for ${packet.type}`);
    }
  });

  it('throws nothing but PacketError on damaged packets', () => {
    const random = seeded(2);
    for (let round = 0; round < ROUNDS; round++) decodeOrRefuse(mutate(encodePacket(anyPacket(random)), random));
  });

  it('throws nothing but PacketError on noise', () => {
    const random = seeded(3);
    for (let round = 0; round < ROUNDS; round++) decodeOrRefuse(bytes(random, 40));
  });
});
