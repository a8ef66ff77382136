import {
  lengthDelimitedSize,
  lengthTag,
  PacketError,
  sizeOf,
  type Value,
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

interface Kind {
  /** Value of the enum PacketType. */
  readonly number: number;
  /** Field number of its payload in the oneof. */
  readonly payload: number;
  /** A packet with all fields of its payload at their defaults. */
  readonly empty: Packet;
  /** The names of those fields, which are numbered from 1 in the order of `empty`. */
  readonly fields: readonly string[];
}

const TYPE_FIELD = 1;
const TYPE_TAG = varintTag(TYPE_FIELD);
const NO_DATA: Uint8Array = Buffer.alloc(0);

const KINDS: Readonly<Record<PacketType, Kind>> = {
  DIAL_REQ: kind(0, 2, { type: 'DIAL_REQ', protocol: '', address: '', random: 0n }),
  DIAL_RSP: kind(1, 3, { type: 'DIAL_RSP', error: '', connectID: 0n, random: 0n }),
  CLOSE_REQ: kind(2, 5, { type: 'CLOSE_REQ', connectID: 0n }),
  CLOSE_RSP: kind(3, 6, { type: 'CLOSE_RSP', error: '', connectID: 0n }),
  DATA: kind(4, 4, { type: 'DATA', connectID: 0n, error: '', data: NO_DATA }),
  DIAL_CLS: kind(5, 7, { type: 'DIAL_CLS', random: 0n }),
  DRAIN: kind(6, 8, { type: 'DRAIN' }),
};

function kind(number: number, payload: number, empty: Packet): Kind {
  const [, ...fields] = Object.keys(empty);
  return { number, payload, empty, fields };
}

const BY_NUMBER = new Map(Object.values(KINDS).map((each) => [each.number, each]));
const BY_TAG = new Map(Object.values(KINDS).map((each) => [lengthTag(each.payload), each]));

/** The fields of a packet by their names. */
type Values = Record<string, Value>;

/**
 * Encodes a packet into one buffer of exactly its size. Not by a generated codec because DATA is the plane's hot path on ANP's links: the
 * payload is copied once, at half the CPU.
 * @param room bytes to reserve at the start for the caller
 */
export function encodePacket(packet: Packet, room = 0): Buffer {
  const writer = begun(packet, room);
  const values = packet as unknown as Values;
  let field = 0;
  for (const name of KINDS[packet.type].fields) writer.value(++field, values[name] as Value);
  return writer.buffer;
}

/** Encodes a DATA packet up to its data, which is the last field. For callers that send the data separately, right after this. */
export function encodeDataHead(packet: Extract<Packet, { type: 'DATA' }>, room = 0): Buffer {
  const { connectID, error, data } = packet;
  const writer = begun(packet, room, data.length);
  writer.value(1, connectID);
  writer.value(2, error);
  if (data.length > 0) writer.messageHead(3, data.length);
  return writer.buffer;
}

/** Writes what comes before the payload's fields. @param left so many bytes at the end that others send */
function begun(packet: Packet, room: number, left = 0): WireWriter {
  const { number, payload, fields } = KINDS[packet.type];
  const values = packet as unknown as Values;
  let length = 0;
  for (const name of fields) length += sizeOf(values[name] as Value);
  const writer = new WireWriter((number === 0 ? 0 : 2) + lengthDelimitedSize(length) - left, room);
  writer.value(TYPE_FIELD, BigInt(number));
  writer.messageHead(payload, length);
  return writer;
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
  let packet: Packet | undefined;
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    const member = BY_TAG.get(tag);
    if (tag === TYPE_TAG) {
      number = reader.int32();
    } else if (member) {
      if (!packet || KINDS[packet.type] !== member) packet = { ...member.empty };
      readFields(new WireReader(reader.bytes()), packet, member.fields);
    } else {
      reader.skip(tag);
    }
  }
  const found = BY_NUMBER.get(number);
  if (!found) throw new PacketError(`packet type ${number} is unknown`);
  if (packet && KINDS[packet.type] !== found)
    throw new PacketError(`a ${found.empty.type} packet has the payload of ${packet.type}`);
  return packet ?? { ...found.empty };
}

function readFields(reader: WireReader, packet: Packet, fields: readonly string[]): void {
  const values = packet as unknown as Values;
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    const name = fields[Math.floor(tag / 8) - 1];
    const value = name === undefined ? undefined : reader.value(tag, values[name] as Value);
    if (name === undefined || value === undefined) reader.skip(tag);
    else values[name] = value;
  }
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
    if (reader.tag() !== TYPE_TAG || reader.int32() !== KINDS.DATA.number) return undefined;
    if (reader.tag() !== lengthTag(KINDS.DATA.payload) || !reader.reachesEnd()) return undefined;
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
