import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  decodeJson,
  decodeJsonMetrics,
  decodeProtobuf,
  decodeProtobufMetrics,
  type ReceivedMetric,
  type ReceivedSpan,
} from './otlp.ts';
import { refuse } from './refuse.ts';

export type { ReceivedMetric, ReceivedSpan } from './otlp.ts';
export { otlpGrpcReceiver } from './otlp-grpc-receiver.ts';

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
