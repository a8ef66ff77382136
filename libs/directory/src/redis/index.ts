export { probeRedis, type RedisProbe } from './connection/probe.ts';
export { redisRegistry } from './registry.ts';
