import { once } from 'node:events';
import { createSecureServer, createServer } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { decodeProtobuf, decodeProtobufMetrics, type ReceivedMetric, type ReceivedSpan } from './otlp.ts';

/** A collector for tests that accepts traces and metrics over OTLP/gRPC, and keeps them. */
export interface OtlpGrpcReceiver extends AsyncDisposable {
  /** The value for OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly endpoint: string;
  readonly spans: ReceivedSpan[];
  /** The metrics of each export, in order. */
  readonly exports: ReceivedMetric[][];
}

const TRACES = '/opentelemetry.proto.collector.trace.v1.TraceService/Export';
const METRICS = '/opentelemetry.proto.collector.metrics.v1.MetricsService/Export';

/** PEM. Clients must present a certificate that `ca` issued. */
export interface ReceiverTls {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca: Buffer;
}

/** Serves TraceService.Export and MetricsService.Export. A request has a five-byte head before its message, and the answer ends with trailers. */
export async function otlpGrpcReceiver(tls?: ReceiverTls): Promise<OtlpGrpcReceiver> {
  const spans: ReceivedSpan[] = [];
  const exports: ReceivedMetric[][] = [];
  const sockets = new Set<Socket>();
  const server = tls ? createSecureServer({ ...tls, requestCert: true, rejectUnauthorized: true }) : createServer();
  server.on('session', (session) => session.on('error', () => {}));
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket)).on('error', () => {});
  });
  server.on('stream', async (stream, headers) => {
    stream.on('error', () => {});
    const chunks: Uint8Array[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    const { ':path': path = '' } = headers;
    const known = [TRACES, METRICS].includes(path);
    const message = Buffer.concat(chunks).subarray(5);
    if (path === TRACES) spans.push(...decodeProtobuf(message));
    if (path === METRICS) exports.push(decodeProtobufMetrics(message));
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    // 12 is UNIMPLEMENTED.
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': known ? '0' : '12' }));
    stream.end(new Uint8Array(5));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    endpoint: `${tls ? 'https' : 'http'}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    exports,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      // End the sockets, not the sessions: on Deno 2.9, ending a session during a request ends the process.
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
