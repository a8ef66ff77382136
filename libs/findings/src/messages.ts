import type { adminApi } from '@isthmus/proto/admin';

/** A message as the console's JSON has it: 64-bit integers are numbers, because all are times and counts below 2^53. */
export type Json<T> = T extends bigint
  ? number
  : T extends readonly (infer E)[]
    ? Json<E>[]
    : T extends object
      ? { readonly [K in keyof T]: Json<T[K]> }
      : T;

export type Status = Json<adminApi.GetStatusResponse>;
export type Members = Json<adminApi.ListMembersResponse>;
export type Hub = Json<adminApi.Hub>;
export type Session = Json<adminApi.Session>;
export type Dial = Json<adminApi.DialRecord>;
export type Refusal = Json<adminApi.Refusal>;
export type FailingDials = Json<adminApi.FailingDials>;
export type Loss = Json<adminApi.Loss>;
export type Tenants = Json<adminApi.ListTenantsResponse>;
export type Config = Json<adminApi.GetConfigResponse>;

/** Returns a message of the RPC as the console's JSON has it. */
export function asJson<T>(message: T): Json<T> {
  const plain = (value: unknown): unknown => {
    if (typeof value === 'bigint') return Number(value);
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
  };
  return plain(message) as Json<T>;
}
