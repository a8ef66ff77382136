import {
  createFileRegistry,
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonValue,
  toBinary,
} from '@bufbuild/protobuf';
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
  readonly #requests: ReadonlyMap<string, DescMessage>;

  constructor() {
    const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, adminDescriptors()));
    const methods = registry.getService(AdminDefinition.fullName)?.methods ?? [];
    this.#requests = new Map(methods.map(({ name, input }) => [name, input]));
  }

  /** @throws Error that says which field is wrong */
  request<M extends keyof Methods>(method: M, json: unknown): ReturnType<Methods[M]['requestType']['decode']> {
    const { name, requestType } = AdminDefinition.methods[method];
    const type = this.#requests.get(name);
    if (!type) throw new Error(`the descriptors have no method ${name}`);
    const bytes = toBinary(type, fromJson(type, json as JsonValue));
    return requestType.decode(bytes) as ReturnType<Methods[M]['requestType']['decode']>;
  }
}
