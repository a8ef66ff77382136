export * from './follow.ts';
export { memoryRegistry } from './memory.ts';
export { planeRoll } from './plane-roll.ts';
export type { RedisRegistryOptions, RedisTimings } from './redis/options.ts';
export * from './registry.ts';
export { Roster } from './roster.ts';
