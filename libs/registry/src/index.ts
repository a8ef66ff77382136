export * from './follow.ts';
export * from './registry.ts';
export type { RedisRegistryOptions, RedisTimings } from './redis/options.ts';
export { memoryRegistry } from './memory.ts';
export { redisRegistry } from './redis/registry.ts';
