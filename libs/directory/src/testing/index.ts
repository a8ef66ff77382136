export * from './observer.ts';
export * from './redis-plane.ts';
// Has an entry of its own, because it loads neither the registry nor the Redis client.
export * from './servers.ts';
