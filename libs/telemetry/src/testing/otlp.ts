/** A span as received over OTLP (opentelemetry-proto, trace.proto). */
export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty for a root. */
  readonly parentSpanId: string;
  readonly name: string;
  /** SpanKind on the wire: 1 internal, 2 server, 3 client. */
  readonly kind: number;
  /** Milliseconds since the epoch. */
  readonly start: number;
  readonly end: number;
  readonly attributes: ReceivedAttributes;
  readonly events: readonly ReceivedEvent[];
  /** Code on the wire: 0 unset, 1 ok, 2 error. */
  readonly status: { readonly code: number; readonly message: string };
  readonly resource: ReceivedAttributes;
}

export type ReceivedAttributes = Readonly<Record<string, string | number>>;

export interface ReceivedEvent {
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly time: number;
  readonly attributes: ReceivedAttributes;
}

/** A metric as received over OTLP (metrics.proto). */
export interface ReceivedMetric {
  readonly name: string;
  readonly description: string;
  /** A counter is a cumulative, monotonic sum. */
  readonly type: 'gauge' | 'counter' | 'histogram';
  readonly points: readonly ReceivedPoint[];
  readonly resource: ReceivedAttributes;
}

export interface ReceivedPoint {
  readonly attributes: ReceivedAttributes;
  /** A histogram's sum. */
  readonly value: number;
  /** Set for a histogram: how many observations each bucket has, and the bounds between them. */
  readonly buckets?: { readonly counts: readonly number[]; readonly bounds: readonly number[] };
}

interface JsonAttribute {
  key: string;
  value: { stringValue?: string; intValue?: number | string; doubleValue?: number };
}

interface JsonSpan extends Pick<ReceivedSpan, 'traceId' | 'spanId' | 'name' | 'kind'> {
  parentSpanId?: string;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: JsonAttribute[];
  events?: { name: string; timeUnixNano: string; attributes: JsonAttribute[] }[];
  status?: { code?: number; message?: string };
}

interface JsonRequest {
  resourceSpans: { resource: { attributes: JsonAttribute[] }; scopeSpans: { spans: JsonSpan[] }[] }[];
}

export function decodeJson(body: Uint8Array): ReceivedSpan[] {
  const request = JSON.parse(new TextDecoder().decode(body)) as JsonRequest;
  return request.resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map(({ traceId, spanId, parentSpanId = '', name, kind, attributes, events = [], status, ...span }) => ({
        traceId,
        spanId,
        parentSpanId,
        name,
        kind,
        start: milliseconds(span.startTimeUnixNano),
        end: milliseconds(span.endTimeUnixNano),
        attributes: jsonAttributes(attributes),
        events: events.map(({ name, timeUnixNano, attributes }) => ({
          name,
          time: milliseconds(timeUnixNano),
          attributes: jsonAttributes(attributes),
        })),
        status: { code: status?.code ?? 0, message: status?.message ?? '' },
        resource: jsonAttributes(resource.attributes),
      })),
    ),
  );
}

function milliseconds(nanoseconds: bigint | string): number {
  return Number(nanoseconds) / 1e6;
}

function jsonAttributes(list: readonly JsonAttribute[]): ReceivedAttributes {
  return Object.fromEntries(
    list.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue ?? value.doubleValue)]),
  );
}

export function decodeProtobuf(body: Uint8Array): ReceivedSpan[] {
  return new Message(body).all(1).flatMap((resourceSpans) => {
    const resource = attributesOf(resourceSpans.one(1), 1);
    const spans = resourceSpans.all(2).flatMap((scopeSpans) => scopeSpans.all(2));
    return spans.map((span) => ({
      traceId: span.hex(1),
      spanId: span.hex(2),
      parentSpanId: span.hex(4),
      name: span.text(5),
      kind: span.number(6),
      start: milliseconds(span.fixed64(7)),
      end: milliseconds(span.fixed64(8)),
      attributes: attributesOf(span, 9),
      events: span.all(11).map((event) => ({
        name: event.text(2),
        time: milliseconds(event.fixed64(1)),
        attributes: attributesOf(event, 3),
      })),
      status: { code: span.one(15).number(3), message: span.one(15).text(2) },
      resource,
    }));
  });
}

interface JsonPoint {
  attributes: JsonAttribute[];
  asDouble?: number;
  sum?: number;
  bucketCounts?: number[];
  explicitBounds?: number[];
}

interface JsonData {
  dataPoints: JsonPoint[];
  aggregationTemporality?: number;
  isMonotonic?: boolean;
}

type JsonDatas = { readonly [Type in 'gauge' | 'sum' | 'histogram']?: JsonData | undefined };

interface JsonMetric extends JsonDatas {
  name: string;
  description: string;
}

interface JsonMetricsRequest {
  resourceMetrics: { resource: { attributes: JsonAttribute[] }; scopeMetrics: { metrics: JsonMetric[] }[] }[];
}

export function decodeJsonMetrics(body: Uint8Array): ReceivedMetric[] {
  const request = JSON.parse(new TextDecoder().decode(body)) as JsonMetricsRequest;
  return request.resourceMetrics.flatMap(({ resource, scopeMetrics }) =>
    scopeMetrics.flatMap(({ metrics }) =>
      metrics.map(({ name, description, gauge, sum, histogram }) => ({
        name,
        description,
        type: typeOf({ gauge, sum, histogram }),
        points: ((gauge ?? sum ?? histogram)?.dataPoints ?? []).map((point) => ({
          attributes: jsonAttributes(point.attributes),
          value: Number(point.asDouble ?? point.sum),
          ...(histogram && { buckets: { counts: point.bucketCounts ?? [], bounds: point.explicitBounds ?? [] } }),
        })),
        resource: jsonAttributes(resource.attributes),
      })),
    ),
  );
}

const CUMULATIVE = 2;

function typeOf({ gauge, sum, histogram }: JsonDatas): ReceivedMetric['type'] {
  if (gauge) return 'gauge';
  const data = sum ?? histogram;
  if (data?.aggregationTemporality !== CUMULATIVE) throw new Error('the metric is not cumulative');
  if (histogram) return 'histogram';
  if (!data.isMonotonic) throw new Error('the sum is not monotonic');
  return 'counter';
}

export function decodeProtobufMetrics(body: Uint8Array): ReceivedMetric[] {
  return new Message(body).all(1).flatMap((resourceMetrics) => {
    const resource = attributesOf(resourceMetrics.one(1), 1);
    const metrics = resourceMetrics.all(2).flatMap((scopeMetrics) => scopeMetrics.all(2));
    return metrics.map((metric) => {
      const data = (field: number): JsonData | undefined => {
        if (!metric.has(field)) return undefined;
        const message = metric.one(field);
        return { dataPoints: [], aggregationTemporality: message.number(2), isMonotonic: message.number(3) === 1 };
      };
      const type = typeOf({ gauge: data(5), sum: data(7), histogram: data(9) });
      const points = [5, 7, 9].flatMap((field) => metric.one(field).all(1));
      return {
        name: metric.text(1),
        description: metric.text(2),
        type,
        points: points.map((point) =>
          type === 'histogram'
            ? {
                attributes: attributesOf(point, 9),
                value: point.double(5),
                buckets: { counts: point.fixed64s(6).map(Number), bounds: point.doubles(7) },
              }
            : { attributes: attributesOf(point, 7), value: point.double(4) },
        ),
        resource,
      };
    });
  });
}

function attributesOf(owner: Message, field: number): ReceivedAttributes {
  const entries = owner.all(field).map((pair) => {
    const value = pair.one(2);
    if (value.has(1)) return [pair.text(1), value.text(1)];
    return [pair.text(1), value.has(4) ? value.double(4) : value.number(3)];
  });
  return Object.fromEntries(entries);
}

/** A protobuf message by field numbers. An absent field is empty or 0, as in proto3. */
class Message {
  readonly #fields: Map<number, Uint8Array[]>;

  constructor(bytes: Uint8Array) {
    this.#fields = fieldsOf(bytes);
  }

  has(field: number): boolean {
    return this.#fields.has(field);
  }

  all(field: number): Message[] {
    return (this.#fields.get(field) ?? []).map((bytes) => new Message(bytes));
  }

  one(field: number): Message {
    return new Message(this.#bytes(field));
  }

  hex(field: number): string {
    return this.#bytes(field).toString('hex');
  }

  text(field: number): string {
    return this.#bytes(field).toString();
  }

  number(field: number): number {
    return varint(this.#bytes(field), 0).value;
  }

  fixed64(field: number): bigint {
    return this.#bytes(field).readBigUInt64LE();
  }

  double(field: number): number {
    return this.#bytes(field).readDoubleLE();
  }

  /** Reads a packed field. */
  fixed64s(field: number): bigint[] {
    const bytes = this.#bytes(field);
    return Array.from({ length: bytes.length / 8 }, (_, index) => bytes.readBigUInt64LE(index * 8));
  }

  /** Reads a packed field. */
  doubles(field: number): number[] {
    const bytes = this.#bytes(field);
    return Array.from({ length: bytes.length / 8 }, (_, index) => bytes.readDoubleLE(index * 8));
  }

  #bytes(field: number): Buffer {
    return Buffer.from(this.#fields.get(field)?.[0] ?? []);
  }
}

/** Returns the raw bytes of each field, without tags and lengths. */
function fieldsOf(bytes: Uint8Array): Map<number, Uint8Array[]> {
  const fields = new Map<number, Uint8Array[]>();
  for (let at = 0; at < bytes.length; ) {
    const tag = varint(bytes, at);
    let start = tag.end;
    let end: number;
    switch (tag.value & 7) {
      case 0:
        end = varint(bytes, start).end;
        break;
      case 1:
        end = start + 8;
        break;
      case 2: {
        const length = varint(bytes, start);
        start = length.end;
        end = start + length.value;
        break;
      }
      case 5:
        end = start + 4;
        break;
      default:
        throw new Error(`wire type ${tag.value & 7} at byte ${at}`);
    }
    const field = tag.value >>> 3;
    fields.set(field, [...(fields.get(field) ?? []), bytes.subarray(start, end)]);
    at = end;
  }
  return fields;
}

function varint(bytes: Uint8Array, start: number): { value: number; end: number } {
  let value = 0;
  let scale = 1;
  let at = start;
  while (at < bytes.length) {
    const byte = bytes[at++] as number;
    value += (byte & 0x7f) * scale;
    scale *= 128;
    if (byte < 0x80) break;
  }
  return { value, end: at };
}
