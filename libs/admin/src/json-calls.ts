import { type AdminJson, adminApi } from '@isthmus/proto/admin';
import type { AskError } from '@isthmus/proto/ask';
import { ServerError, Status } from 'nice-grpc';
import type { Method } from './access/guard.ts';
import { absent, internal, invalid } from './calls/messages.ts';

/** By the names and statuses of https://connectrpc.com/docs/protocol. */
const CODES: { readonly [code: number]: readonly [name: string, status: number] } = {
  [Status.INVALID_ARGUMENT]: ['invalid_argument', 400],
  [Status.NOT_FOUND]: ['not_found', 404],
  [Status.PERMISSION_DENIED]: ['permission_denied', 403],
  [Status.RESOURCE_EXHAUSTED]: ['resource_exhausted', 429],
  [Status.UNIMPLEMENTED]: ['unimplemented', 501],
  [Status.UNAVAILABLE]: ['unavailable', 503],
};

/** Says why a call failed, and the status of HTTP for it. */
export function faultOf(error: unknown): { readonly status: number; readonly fault: AskError } {
  const known = error instanceof ServerError ? error : internal((error as Error).message);
  const [code, status] = CODES[known.code] ?? ['internal', 500];
  return { status, fault: { code, message: known.details } };
}

/** @param name `GetStatus` @throws ServerError */
export function methodNamed(name: string): Method {
  const found = Object.entries(adminApi.AdminDefinition.methods).find(([, each]) => each.name === name);
  if (found) return found[0] as Method;
  throw absent(`the admin RPC has no method ${name.slice(0, 100)}`);
}

/** As Connect's protocol has it, only such methods answer a GET. */
export function changesNothing(method: Method): boolean {
  const { options } = adminApi.AdminDefinition.methods[method];
  return 'idempotencyLevel' in options && options.idempotencyLevel === 'NO_SIDE_EFFECTS';
}

/** Whether it answers until the client is gone. */
export function isStream(method: Method): boolean {
  return adminApi.AdminDefinition.methods[method].responseStream;
}

/** Reads a method's request from JSON. @throws ServerError that names the field that is wrong */
export function requestIn(json: AdminJson, method: Method, message: unknown): object {
  try {
    return json.request(method, message);
  } catch (error) {
    throw invalid((error as Error).message);
  }
}
