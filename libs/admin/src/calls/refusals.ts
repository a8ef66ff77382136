import { ServerError, Status } from 'nice-grpc';

/** The errors of the admin RPC. Each text says what to do. */

/** The program has no part that can do it. */
export function absent(text: string): ServerError {
  return new ServerError(Status.UNIMPLEMENTED, text);
}

export function invalid(text: string): ServerError {
  return new ServerError(Status.INVALID_ARGUMENT, text);
}

export function notFound(text: string): ServerError {
  return new ServerError(Status.NOT_FOUND, text);
}

export function exhausted(text: string): ServerError {
  return new ServerError(Status.RESOURCE_EXHAUSTED, text);
}

export function internal(text: string): ServerError {
  return new ServerError(Status.INTERNAL, text);
}

export function unavailable(text: string): ServerError {
  return new ServerError(Status.UNAVAILABLE, text);
}
