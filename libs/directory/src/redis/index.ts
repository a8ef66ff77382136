export { probeRedis, type RedisProbe } from './probe.ts';
export { redisRegistry } from './registry.ts';
