import { adminApi, adminDescriptors } from '@isthmus/proto/admin';
import type { CallContext } from 'nice-grpc';
import { ServerReflection, ServerReflectionService } from 'nice-grpc-server-reflection';

/**
 * Reflection must describe every service that it lists, or clients that read them all fail. The descriptors of the others are not
 * available.
 */
const { serverReflectionInfo } = ServerReflection(adminDescriptors(), [adminApi.AdminDefinition.fullName]);
const { requestDeserialize, responseSerialize } = ServerReflectionService.serverReflectionInfo;

/** Answers requests of grpc.reflection.v1, as they are on the wire. */
export async function* reflect(requests: AsyncIterable<Buffer>, context: CallContext): AsyncIterable<Buffer> {
  for await (const answer of serverReflectionInfo(decoded(requests), context)) yield responseSerialize(answer);
}

async function* decoded(requests: AsyncIterable<Buffer>) {
  for await (const request of requests) yield requestDeserialize(request);
}
