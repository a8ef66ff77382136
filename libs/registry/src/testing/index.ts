export { freePort } from './free-port.ts';
export * from './observer.ts';
export * from './records.ts';
export * from './redis-cluster.ts';
export type { RedisGroup } from './redis-group.ts';
export * from './redis-plane.ts';
export * from './redis-sentinel.ts';
export {
  PLANE_USER,
  planeUserArgs,
  type RedisServer,
  type RedisServerOptions,
  type RedisTls,
  redisMissing,
  startRedis,
} from './redis-server.ts';
