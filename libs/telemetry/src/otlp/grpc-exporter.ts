import type { ISerializer } from '@opentelemetry/otlp-transformer';
import type { OtlpSettings } from './environment.ts';
import { GrpcCalls } from './grpc-calls.ts';

interface ExportResult {
  readonly code: 0 | 1;
  readonly error?: Error;
}

/** What the SDK's batches are handed to, of spans or of records of log. */
export interface Exporter<Item> {
  export(items: Item[], done: (result: ExportResult) => void): void;
  forceFlush(): Promise<void>;
  shutdown(): Promise<void>;
}

/**
 * Exports over OTLP/gRPC.
 * @param path of the collector's method
 * @throws TypeError for a URL that is none
 */
export function grpcExporter<Item>(
  { grpc, timeoutMillis }: OtlpSettings,
  path: string,
  serializer: ISerializer<Item[], unknown>,
): Exporter<Item> {
  if (!grpc) throw new TypeError('the settings are of another protocol');
  const calls = new GrpcCalls(grpc, path);
  const send = async (items: Item[]) => {
    const message = serializer.serializeRequest(items);
    if (!message) throw new Error('cannot be encoded');
    await calls.send(message, timeoutMillis);
  };
  return {
    export(items, done) {
      send(items).then(
        () => done({ code: 0 }),
        (error: Error) => done({ code: 1, error }),
      );
    },
    async forceFlush() {},
    async shutdown() {
      calls.close();
    },
  };
}
