import {
  createFileRegistry,
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonValue,
  toBinary,
} from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { adminDescriptors } from './admin-descriptors.ts';
import { AdminDefinition } from './gen/isthmus/admin/v1/admin.ts';

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
