export { adminDescriptors } from './admin-descriptors.ts';
export * from './codec.ts';
export * as adminApi from './gen/isthmus/admin/v1/admin.ts';
export * from './packet.ts';
export { PacketError } from './wire.ts';
