import type { OtlpSettings, Protocol } from './environment.ts';
import type { Exporter, GrpcMethod, Response } from './grpc-exporter.ts';

/** How a signal is exported by each protocol. Only the code of the protocol in use is loaded. */
export interface Exporters<Batch, Answer extends Response>
  extends Record<
    Exclude<Protocol, 'grpc'>,
    () => Promise<new (config: { url: string; timeoutMillis: number }) => Exporter<Batch>>
  > {
  readonly grpc: () => Promise<GrpcMethod<Batch, Answer>>;
}

/** @throws TypeError if the URL is invalid */
export async function otlpExporter<Batch, Answer extends Response>(
  settings: OtlpSettings,
  exporters: Exporters<Batch, Answer>,
): Promise<Exporter<Batch>> {
  const { protocol, url, timeoutMillis } = settings;
  if (protocol === 'grpc') {
    const [{ grpcExporter }, method] = await Promise.all([import('./grpc-exporter.ts'), exporters.grpc()]);
    return grpcExporter(settings, method);
  }
  const OtlpExporter = await exporters[protocol]();
  return new OtlpExporter({ url, timeoutMillis });
}

/** The part of a pino logger that exports need. */
export interface ExportLogger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/** Called when exporting begins to fail, and when it works again. */
export type ExportReport = (failure: Error | undefined) => void;

/** Reports when an exporter begins to fail and when it works again. The SDK does not report an exporter's failures. */
export function reporting<Batch>(exporter: Exporter<Batch>, report: ExportReport): Exporter<Batch> {
  let failing = false;
  return {
    export(batch, done) {
      exporter.export(batch, (result) => {
        const failed = result.error !== undefined || result.code !== 0;
        if (failed !== failing) report(failed ? (result.error ?? new Error('export failed')) : undefined);
        failing = failed;
        done(result);
      });
    },
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
}
