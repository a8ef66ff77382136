import { type ServiceDefinition, status, type UntypedServiceImplementation } from '@grpc/grpc-js';
import { decodePacket, encodePacket, type Packet, type PacketError } from '@isthmus/proto';

/** A service as grpc-js's Server takes it. */
export interface GrpcService {
  readonly definition: ServiceDefinition;
  readonly implementation: UntypedServiceImplementation;
}

/** What came on a stream: bytes that are no packet arrive as the error, so that its sender can be told which. */
export type Received = Packet | PacketError;

/** ANP's two methods; its services have no package. */
export const PROXY_METHOD = '/ProxyService/Proxy';
export const CONNECT_METHOD = '/AgentService/Connect';

/** A message may be this long, in bytes: Go's limit of 4 MiB for the data, and the packet's head. */
export const MAX_MESSAGE = 4 * 1024 * 1024 + 64 * 1024;

export function receivePacket(bytes: Buffer): Received {
  try {
    return decodePacket(bytes);
  } catch (error) {
    return error as PacketError;
  }
}

/** The definition of one method that streams packets both ways. */
export function packetMethod(name: string, path: string): ServiceDefinition {
  return {
    [name]: {
      path,
      requestStream: true,
      responseStream: true,
      requestSerialize: encodePacket,
      requestDeserialize: receivePacket,
      responseSerialize: encodePacket,
      responseDeserialize: receivePacket,
    },
  };
}

/** Go's name of a gRPC status code, which ANP's metrics show: `Unavailable`, `Canceled`. */
export function statusName(code: number): string {
  if (code === status.CANCELLED) return 'Canceled';
  const name = status[code] ?? 'UNKNOWN';
  if (name === 'OK') return name;
  return name
    .split('_')
    .map((word) => word.charAt(0) + word.slice(1).toLowerCase())
    .join('');
}
