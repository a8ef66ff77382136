import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttp2Server, createSecureServer } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { DEADLINE_MS } from '@isthmus/runtime/testing';
import {
  decodeJson,
  decodeJsonMetrics,
  decodeProtobuf,
  decodeProtobufMetrics,
  type ReceivedMetric,
  type ReceivedSpan,
} from './otlp.ts';

export type { ReceivedMetric, ReceivedSpan } from './otlp.ts';

/**
 * Gives open requests a final answer. Otherwise the exporter would retry until its timeout and keep its process alive.
 * @throws AbortError if an exporter does not read its answer
 */
export async function refuse(responses: readonly ServerResponse[]): Promise<void> {
  const open = responses.filter(({ destroyed }) => !destroyed);
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const closed = open.map((response) => once(response, 'close', { signal }));
  for (const response of open) response.writeHead(400).end();
  await Promise.all(closed);
}

/** A collector for tests that accepts traces and metrics over OTLP/HTTP, as protobuf or JSON, and keeps them. */
export interface OtlpReceiver extends AsyncDisposable {
  /** The value for OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly endpoint: string;
  readonly spans: ReceivedSpan[];
  /** The metrics of each export, in order. */
  readonly exports: ReceivedMetric[][];
  /** The content types of the requests, in order. */
  readonly requests: string[];
  /** The HTTP status of the answers; 0 for no answer. Default 200. */
  status: number;
}

export async function otlpReceiver(): Promise<OtlpReceiver> {
  const unanswered: ServerResponse[] = [];
  const server = createServer((request, response) => {
    take(request).then(
      () => {
        if (receiver.status !== 0) response.writeHead(receiver.status).end();
        else unanswered.push(response);
      },
      (error) => response.destroy(error),
    );
  });
  const take = async (request: IncomingMessage): Promise<void> => {
    const type = request.headers['content-type'] ?? '';
    const chunks: Uint8Array[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    receiver.requests.push(type);
    const json = type === 'application/json';
    if (request.url !== '/v1/traces' && request.url !== '/v1/metrics') receiver.status = 404;
    if (receiver.status !== 200) return;
    if (request.url === '/v1/metrics') receiver.exports.push((json ? decodeJsonMetrics : decodeProtobufMetrics)(body));
    else receiver.spans.push(...(json ? decodeJson : decodeProtobuf)(body));
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const receiver: OtlpReceiver = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: [],
    exports: [],
    requests: [],
    status: 200,
    async [Symbol.asyncDispose]() {
      await refuse(unanswered);
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
  return receiver;
}

/** Spans as a tree of their names: `{ 'gateway.dial': { 'hub.dial': { 'agent.dial': {} } } }`. */
export interface SpanTree {
  readonly [name: string]: SpanTree;
}

/** Returns the trees of spans, rooted at those whose parent is missing. @param label the name of a span; siblings need different names */
export function spanTree(spans: readonly ReceivedSpan[], label = ({ name }: ReceivedSpan): string => name): SpanTree {
  const ids = new Set(spans.map(({ spanId }) => spanId));
  const trees = (children: readonly ReceivedSpan[]): SpanTree =>
    Object.fromEntries(children.map((child) => [label(child), trees(childrenOf(spans, child))]));
  return trees(spans.filter(({ parentSpanId }) => !ids.has(parentSpanId)));
}

function childrenOf(spans: readonly ReceivedSpan[], { traceId, spanId }: ReceivedSpan): ReceivedSpan[] {
  return spans.filter((span) => span.parentSpanId === spanId && span.traceId === traceId);
}

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
interface ReceiverTls {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca: Buffer;
}

/** Serves TraceService.Export and MetricsService.Export. A request has a five-byte head before its message, and the answer ends with trailers. */
export async function otlpGrpcReceiver(tls?: ReceiverTls): Promise<OtlpGrpcReceiver> {
  const spans: ReceivedSpan[] = [];
  const exports: ReceivedMetric[][] = [];
  const sockets = new Set<Socket>();
  const server = tls
    ? createSecureServer({ ...tls, requestCert: true, rejectUnauthorized: true })
    : createHttp2Server();
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
    // By name: grpc-js 1.14 takes no address for TLS on Node 26.
    endpoint: `${tls ? 'https://localhost' : 'http://127.0.0.1'}:${(server.address() as AddressInfo).port}`,
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
