import { adminApi } from '@isthmus/proto';
import { createChannel, createClient } from 'nice-grpc';

export interface AdminConnection extends Disposable {
  readonly admin: adminApi.AdminClient;
}

/** A list of 100,000 tunnels is about 20 MB. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;

/** A client of a program's admin port, at `host:port`. */
export function adminClient(address: string): AdminConnection {
  const channel = createChannel(address, undefined, { 'grpc.max_receive_message_length': MAX_RESPONSE_BYTES });
  const admin = createClient(adminApi.AdminDefinition, channel);
  return { admin, [Symbol.dispose]: () => channel.close() };
}
