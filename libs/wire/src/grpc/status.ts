import { LONGEST_TIMER, printable } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';
import type { Field } from '../http2/heads.ts';
import { hpackEncode } from '../http2/hpack.ts';

/** gRPC's status codes, by Go's names, which ANP's metrics show. */
const STATUS = {
  OK: 0,
  Canceled: 1,
  Unknown: 2,
  InvalidArgument: 3,
  DeadlineExceeded: 4,
  NotFound: 5,
  AlreadyExists: 6,
  PermissionDenied: 7,
  ResourceExhausted: 8,
  FailedPrecondition: 9,
  Aborted: 10,
  OutOfRange: 11,
  Unimplemented: 12,
  Internal: 13,
  Unavailable: 14,
  DataLoss: 15,
  Unauthenticated: 16,
} as const;

export type StatusName = keyof typeof STATUS;

const NAMES = new Map(Object.entries(STATUS).map(([name, code]): [number, StatusName] => [code, name as StatusName]));

/** Why a call failed. */
export class StatusError extends Error {
  override readonly name = 'StatusError';
  readonly code: StatusName;

  constructor(code: StatusName, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

const OK_FIELDS: readonly Field[] = [['grpc-status', '0']];

export function statusFields(error?: StatusError): readonly Field[] {
  if (!error) return OK_FIELDS;
  return [
    ['grpc-status', String(STATUS[error.code])],
    ['grpc-message', percentEncode(error.message).slice(0, WIRE.statusChars)],
  ];
}

/** Printable ASCII stays as it is, except the percent sign (gRPC over HTTP/2, "Status-Message"). */
function percentEncode(text: string): string {
  let encoded = '';
  for (const byte of Buffer.from(text)) {
    const plain = byte >= 0x20 && byte <= 0x7e && byte !== 0x25;
    encoded += plain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}

export const OK_TRAILERS = hpackEncode(OK_FIELDS);

/** What an answer of another status than 200 means, which something else than a gRPC server gave (gRPC, "HTTP to gRPC Status Code Mapping"). */
const OF_HTTP: Readonly<Record<string, StatusName>> = {
  ...{ 400: 'Internal', 401: 'Unauthenticated', 403: 'PermissionDenied', 404: 'Unimplemented' },
  ...{ 429: 'Unavailable', 502: 'Unavailable', 503: 'Unavailable', 504: 'Unavailable' },
};

/** Returns how a call ends, by the head or the trailers of its answer: well, or with an error. Undefined: they do not say yet. */
export function statusIn(metadata: Metadata): { readonly error?: StatusError } | undefined {
  const [http = '200', code, text = ''] = [':status', 'grpc-status', 'grpc-message'].map((name) =>
    metadata.first(name),
  );
  if (code === '0') return {};
  if (code !== undefined)
    return { error: new StatusError(NAMES.get(Number(code)) ?? 'Unknown', printable(percentDecode(text))) };
  if (http === '200') return undefined;
  return { error: new StatusError(OF_HTTP[http] ?? 'Unknown', `answered with HTTP status ${http}`) };
}

function percentDecode(text: string): string {
  try {
    return decodeURIComponent(text.slice(0, WIRE.statusChars));
  } catch {
    return text.slice(0, WIRE.statusChars);
  }
}

/** Milliseconds in gRPC's units of time. */
const UNITS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/**
 * Reads `grpc-timeout` (gRPC over HTTP/2, "Timeout"). Returns milliseconds; NaN if it is malformed; undefined without one, or if it is
 * too long to matter.
 */
export function readTimeout(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, digits, unit] = /^(\d{1,8})([HMSmun])$/.exec(text) ?? [];
  const ms = Number(digits) * (UNITS[unit ?? ''] ?? Number.NaN);
  return ms > LONGEST_TIMER ? undefined : ms;
}

/** A caller's metadata. Values of names that end in `-bin` stay base64. */
export class Metadata {
  readonly #fields: readonly Field[];

  constructor(fields: readonly Field[]) {
    this.#fields = fields;
  }

  /** All values of a name, in order. */
  get(name: string): string[] {
    return this.#fields.filter(([own]) => own === name).map(([, value]) => value);
  }

  /** The first value of a name. */
  first(name: string): string | undefined {
    for (const [own, value] of this.#fields) if (own === name) return value;
    return undefined;
  }
}
