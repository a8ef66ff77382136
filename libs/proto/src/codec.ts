import {
  bytesSize,
  int64Size,
  lengthDelimitedSize,
  lengthTag,
  PacketError,
  stringSize,
  varintTag,
  WireReader,
  WireWriter,
} from './wire.ts';

/**
 * The packets of the Konnectivity protocol. The union ties each type to its payload.
 *
 * On the wire (proto3, no package): `type` is field 1, the payload is one field of a oneof; `random` and `connectID`
 * are int64, which Go peers fill with full 63-bit values, so they are bigints from end to end.
 */
export type Packet =
  | { readonly type: 'DIAL_REQ'; readonly protocol: string; readonly address: string; readonly random: bigint }
  | { readonly type: 'DIAL_RSP'; readonly error: string; readonly connectID: bigint; readonly random: bigint }
  | { readonly type: 'CLOSE_REQ'; readonly connectID: bigint }
  | { readonly type: 'CLOSE_RSP'; readonly error: string; readonly connectID: bigint }
  | { readonly type: 'DATA'; readonly connectID: bigint; readonly error: string; readonly data: Uint8Array }
  | { readonly type: 'DIAL_CLS'; readonly random: bigint }
  | { readonly type: 'DRAIN' };

export type PacketType = Packet['type'];

/** Packet types by their number on the wire. */
const TYPES: readonly PacketType[] = [
  'DIAL_REQ',
  'DIAL_RSP',
  'CLOSE_REQ',
  'CLOSE_RSP',
  'DATA',
  'DIAL_CLS',
  'DRAIN',
] satisfies PacketType[];

interface TypeOnWire {
  /** Value of the enum PacketType. */
  readonly number: number;
  /** Field number of its payload in the oneof. */
  readonly payload: number;
}

const ON_WIRE: Readonly<Record<PacketType, TypeOnWire>> = {
  DIAL_REQ: { number: 0, payload: 2 },
  DIAL_RSP: { number: 1, payload: 3 },
  CLOSE_REQ: { number: 2, payload: 5 },
  CLOSE_RSP: { number: 3, payload: 6 },
  DATA: { number: 4, payload: 4 },
  DIAL_CLS: { number: 5, payload: 7 },
  DRAIN: { number: 6, payload: 8 },
};

const TYPE_FIELD = 1;
const FIRST_PAYLOAD = 2;
const LAST_PAYLOAD = 8;
const EMPTY: Uint8Array = Buffer.alloc(0);

/**
 * Encodes a packet into one buffer of exactly its size. Hand-written because DATA is the plane's hot path on ANP's links:
 * the payload is copied once, and generated codecs cost twice the CPU.
 * @param room bytes to reserve at the start for the caller
 */
export function encodePacket(packet: Packet, room = 0): Buffer {
  const { number, payload } = ON_WIRE[packet.type];
  const length = payloadSize(packet);
  const writer = new WireWriter((number === 0 ? 0 : 2) + lengthDelimitedSize(length), room);
  writer.enumeration(TYPE_FIELD, number);
  writer.messageHead(payload, length);
  writePayload(writer, packet);
  return writer.buffer;
}

/** Encodes a DATA packet up to its data, which is the last field. For callers that send the data separately, right after this. */
export function encodeDataHead(packet: Extract<Packet, { type: 'DATA' }>, room = 0): Buffer {
  const { number, payload } = ON_WIRE.DATA;
  const { connectID, error, data } = packet;
  const length = payloadSize(packet);
  const writer = new WireWriter(2 + lengthDelimitedSize(length) - data.length, room);
  writer.enumeration(TYPE_FIELD, number);
  writer.messageHead(payload, length);
  writer.int64(1, connectID);
  writer.string(2, error);
  if (data.length > 0) writer.messageHead(3, data.length);
  return writer.buffer;
}

function payloadSize(packet: Packet): number {
  switch (packet.type) {
    case 'DATA':
      return int64Size(packet.connectID) + stringSize(packet.error) + bytesSize(packet.data);
    case 'DIAL_REQ':
      return stringSize(packet.protocol) + stringSize(packet.address) + int64Size(packet.random);
    case 'DIAL_RSP':
      return stringSize(packet.error) + int64Size(packet.connectID) + int64Size(packet.random);
    case 'CLOSE_REQ':
      return int64Size(packet.connectID);
    case 'CLOSE_RSP':
      return stringSize(packet.error) + int64Size(packet.connectID);
    case 'DIAL_CLS':
      return int64Size(packet.random);
    case 'DRAIN':
      return 0;
  }
}

function writePayload(writer: WireWriter, packet: Packet): void {
  switch (packet.type) {
    case 'DATA':
      writer.int64(1, packet.connectID);
      writer.string(2, packet.error);
      writer.bytes(3, packet.data);
      return;
    case 'DIAL_REQ':
      writer.string(1, packet.protocol);
      writer.string(2, packet.address);
      writer.int64(3, packet.random);
      return;
    case 'DIAL_RSP':
      writer.string(1, packet.error);
      writer.int64(2, packet.connectID);
      writer.int64(3, packet.random);
      return;
    case 'CLOSE_REQ':
      writer.int64(1, packet.connectID);
      return;
    case 'CLOSE_RSP':
      writer.string(1, packet.error);
      writer.int64(2, packet.connectID);
      return;
    case 'DIAL_CLS':
      writer.int64(1, packet.random);
      return;
    case 'DRAIN':
      return;
  }
}

/** What was read of the oneof so far: the fields of all payload messages, at their defaults until they are read. */
class Payload {
  /** Field number in the oneof; 0 until one is read. */
  readonly field: number;
  protocol = '';
  address = '';
  error = '';
  random = 0n;
  connectID = 0n;
  data = EMPTY;

  constructor(field: number) {
    this.field = field;
  }
}

/**
 * Decodes one packet. `data` of a DATA packet is a view of `bytes`.
 *
 * Like Go's decoder, it skips unknown fields. In a oneof the last member counts, and a member that is repeated is merged. A missing
 * `type` is DIAL_REQ; a missing payload has all its fields at their defaults.
 * @throws PacketError if the bytes are not a packet, the type is unknown, or the payload belongs to another type.
 */
export function decodePacket(bytes: Uint8Array): Packet {
  const reader = new WireReader(bytes);
  let number = 0;
  let payload = new Payload(0);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === varintTag(TYPE_FIELD)) {
      number = reader.int32();
    } else if (isPayloadTag(tag)) {
      const field = tag >> 3;
      if (payload.field !== field) payload = new Payload(field);
      readPayload(reader.message(), payload);
    } else {
      reader.skip(tag);
    }
  }
  return packetOf(number, payload);
}

/**
 * Reads the beginning of a DATA packet, so that its data can be passed on as it arrives. The data must be last, where every encoder
 * puts it.
 * @param bytes at least the packet's first 44 bytes
 * @param length of the whole packet
 * @returns the connectID and the number of bytes before the data; undefined for another packet, or another layout
 */
export function decodeDataHead(
  bytes: Uint8Array,
  length: number,
): { readonly connectID: bigint; readonly length: number } | undefined {
  const reader = new WireReader(bytes, 0, length);
  try {
    if (reader.tag() !== varintTag(TYPE_FIELD) || reader.int32() !== ON_WIRE.DATA.number) return undefined;
    if (reader.tag() !== lengthTag(ON_WIRE.DATA.payload) || !reader.reachesEnd()) return undefined;
    let connectID = 0n;
    let tag = reader.tag();
    if (tag === varintTag(1)) {
      connectID = reader.int64();
      tag = reader.tag();
    }
    return tag === lengthTag(3) && reader.reachesEnd() ? { connectID, length: reader.offset } : undefined;
  } catch {
    return undefined;
  }
}

function isPayloadTag(tag: number): boolean {
  return tag >= lengthTag(FIRST_PAYLOAD) && tag <= lengthTag(LAST_PAYLOAD) && tag === lengthTag(tag >> 3);
}

function readPayload(reader: WireReader, payload: Payload): void {
  while (!reader.done) {
    const tag = reader.tag();
    if (!readField(reader, tag, payload)) reader.skip(tag);
  }
}

/** Reads one field of a payload message. Returns false if the message has no such field. */
function readField(reader: WireReader, tag: number, payload: Payload): boolean {
  switch (payload.field) {
    case ON_WIRE.DATA.payload:
      if (tag === varintTag(1)) payload.connectID = reader.int64();
      else if (tag === lengthTag(2)) payload.error = reader.string();
      else if (tag === lengthTag(3)) payload.data = reader.bytes();
      else return false;
      return true;
    case ON_WIRE.DIAL_REQ.payload:
      if (tag === lengthTag(1)) payload.protocol = reader.string();
      else if (tag === lengthTag(2)) payload.address = reader.string();
      else if (tag === varintTag(3)) payload.random = reader.int64();
      else return false;
      return true;
    case ON_WIRE.DIAL_RSP.payload:
      if (tag === lengthTag(1)) payload.error = reader.string();
      else if (tag === varintTag(2)) payload.connectID = reader.int64();
      else if (tag === varintTag(3)) payload.random = reader.int64();
      else return false;
      return true;
    case ON_WIRE.CLOSE_REQ.payload:
      if (tag !== varintTag(1)) return false;
      payload.connectID = reader.int64();
      return true;
    case ON_WIRE.CLOSE_RSP.payload:
      if (tag === lengthTag(1)) payload.error = reader.string();
      else if (tag === varintTag(2)) payload.connectID = reader.int64();
      else return false;
      return true;
    case ON_WIRE.DIAL_CLS.payload:
      if (tag !== varintTag(1)) return false;
      payload.random = reader.int64();
      return true;
    default:
      return false;
  }
}

function packetOf(number: number, payload: Payload): Packet {
  const type = TYPES[number];
  if (type === undefined) throw new PacketError(`packet type ${number} is unknown`);
  if (payload.field !== 0 && payload.field !== ON_WIRE[type].payload) {
    const other = TYPES.find((candidate) => ON_WIRE[candidate].payload === payload.field);
    throw new PacketError(`a ${type} packet has the payload of ${other}`);
  }
  const { protocol, address, error, random, connectID, data } = payload;
  switch (type) {
    case 'DATA':
      return { type, connectID, error, data };
    case 'DIAL_REQ':
      return { type, protocol, address, random };
    case 'DIAL_RSP':
      return { type, error, connectID, random };
    case 'CLOSE_REQ':
      return { type, connectID };
    case 'CLOSE_RSP':
      return { type, error, connectID };
    case 'DIAL_CLS':
      return { type, random };
    case 'DRAIN':
      return { type };
  }
}
