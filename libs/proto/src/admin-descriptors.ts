import { ADMIN_DESCRIPTORS } from './gen/isthmus/admin/v1/descriptors.ts';

/** Returns the admin API as a google.protobuf.FileDescriptorSet. Reflection serves it to clients that have no `.proto` files. */
export function adminDescriptors(): Uint8Array {
  return Uint8Array.from(Buffer.from(ADMIN_DESCRIPTORS, 'base64'));
}
