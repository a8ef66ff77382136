import { ADMIN_DESCRIPTORS } from './gen/isthmus/admin/v1/descriptors.ts';

/** The admin API as a google.protobuf.FileDescriptorSet: what reflection tells clients that have no `.proto` files. */
export function adminDescriptors(): Uint8Array {
  return Uint8Array.from(Buffer.from(ADMIN_DESCRIPTORS, 'base64'));
}
