export { AdminJson, answerIn } from './admin-json.ts';
export { type EnumName, namesOf, valuesOf } from './enum-names.ts';
export * as adminApi from './gen/isthmus/admin/v1/admin.ts';
