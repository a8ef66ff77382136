export { Directory } from './directory.ts';
export { runSync } from './program.ts';
export { Sync } from './sync.ts';
