import { createFileRegistry, type DescField, type DescMessage, fromBinary, ScalarType } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { adminDescriptors } from './admin-json.ts';
import { AdminDefinition } from './gen/isthmus/admin/v1/admin.ts';

const FILES = createFileRegistry(fromBinary(FileDescriptorSetSchema, adminDescriptors()));

/**
 * An answer of the admin API with all its fields, in each list one.
 * @param method `GetStatus`
 * @param text what every text of it is
 * @param flag what every boolean of it is
 */
export function filledAnswer(method: string, text: string, flag: boolean): object {
  const found = FILES.getService(AdminDefinition.fullName)?.methods.find(({ name }) => name === method);
  if (!found) throw new Error(`there is no method ${method}`);
  return filled(found.output, (field) => {
    if (field.scalar === ScalarType.STRING) return text;
    if (field.scalar === ScalarType.BOOL) return flag;
    // An enum's first value stands for none.
    return /Ms$/.test(field.localName) && field.scalar === ScalarType.INT64 ? Date.now() - 1000 : 1;
  });
}

function filled({ fields }: DescMessage, plain: (field: DescField) => unknown): object {
  const values = fields.map((field) => {
    const value = field.message ? filled(field.message, plain) : plain(field);
    return [field.localName, field.fieldKind === 'list' ? [value] : value];
  });
  return Object.fromEntries(values);
}
