export { adminDescriptors } from './admin-descriptors.ts';
export * as adminApi from './gen/isthmus/admin/v1/admin.ts';
