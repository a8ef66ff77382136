export * from './codec.ts';
export * from './packet.ts';
export { PacketError } from './wire.ts';
