export * from './follow.ts';
export { memoryRegistry } from './memory.ts';
export type { RedisRegistryOptions, RedisTimings } from './redis/options.ts';
export { probeRedis, type RedisProbe } from './redis/probe.ts';
export { redisRegistry } from './redis/registry.ts';
export * from './registry.ts';
