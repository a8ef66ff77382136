export { freePort } from './free-port.ts';
export * from './redis-groups.ts';
export {
  PLANE_USER,
  planeUserArgs,
  type RedisServer,
  type RedisServerOptions,
  type RedisTls,
  redisMissing,
  startRedis,
} from './redis-server.ts';
