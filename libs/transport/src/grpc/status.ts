import { type Field, hpackEncode } from '@isthmus/wire';

/** gRPC's status codes, by Go's names, which ANP's metrics show. */
export const STATUS = {
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

export function statusName(code: number): StatusName {
  return NAMES.get(code) ?? 'Unknown';
}

/** Why a call ends. */
export class StatusError extends Error {
  override readonly name = 'StatusError';
  readonly status: StatusName;

  constructor(status: StatusName, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

/** A longer text would not fit into its frame. */
const MAX_TEXT = 4_096;

const OK_FIELDS: readonly Field[] = [['grpc-status', '0']];

export function statusFields(error?: StatusError): readonly Field[] {
  if (!error) return OK_FIELDS;
  return [
    ['grpc-status', String(STATUS[error.status])],
    ['grpc-message', percentEncode(error.message).slice(0, MAX_TEXT)],
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
