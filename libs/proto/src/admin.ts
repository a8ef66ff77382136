export { adminDescriptors } from './admin-descriptors.ts';
export { AdminJson } from './admin-json.ts';
export * as adminApi from './gen/isthmus/admin/v1/admin.ts';
