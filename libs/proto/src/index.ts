export { decodeDataHead, decodePacket, encodeDataHead, encodePacket } from './codec.ts';
export type { Packet, PacketType } from './packet.ts';
