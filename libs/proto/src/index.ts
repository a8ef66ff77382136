export { decodeDataHead, decodePacket, encodeDataHead, encodePacket, type Packet, type PacketType } from './codec.ts';
