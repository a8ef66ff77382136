import { createFileRegistry, fromBinary, fromJson, type JsonValue, toBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { AdminDefinition } from './gen/isthmus/admin/v1/admin.ts';
import { ADMIN_DESCRIPTORS } from './gen/isthmus/admin/v1/descriptors.ts';

/** Returns the admin API as a google.protobuf.FileDescriptorSet. Reflection serves it to clients that have no `.proto` files. */
export function adminDescriptors(): Uint8Array {
  return Uint8Array.from(Buffer.from(ADMIN_DESCRIPTORS, 'base64'));
}

type Methods = typeof AdminDefinition.methods;

/** Reads requests of the admin API from ProtoJSON, by the API's descriptors. */
export class AdminJson {
  readonly #service = createFileRegistry(fromBinary(FileDescriptorSetSchema, adminDescriptors())).getService(
    AdminDefinition.fullName,
  );

  /** @throws Error that says which field is wrong */
  request<M extends keyof Methods>(method: M, json: unknown): ReturnType<Methods[M]['requestType']['decode']> {
    const { name, requestType } = AdminDefinition.methods[method];
    const type = this.#service?.method[method]?.input;
    if (!type) throw new Error(`the descriptors have no method ${name}`);
    const bytes = toBinary(type, fromJson(type, json as JsonValue));
    return requestType.decode(bytes) as ReturnType<Methods[M]['requestType']['decode']>;
  }
}

/**
 * Reads an answer of the admin API from the JSON that another process has sent. Texts, numbers and lists are what the method says they are.
 * @throws Error if it cannot be read so
 */
export function answerIn<M extends keyof Methods>(method: M, said: unknown) {
  const { responseType } = AdminDefinition.methods[method];
  try {
    if (typeof said !== 'object' || !said) throw new Error('it is no message');
    const message = responseType.fromPartial(said);
    return responseType.decode(responseType.encode(message as never).finish());
  } catch (cause) {
    throw new Error('its answer cannot be read', { cause });
  }
}
