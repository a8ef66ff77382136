export { type Following, follow } from './follow.ts';
export { memoryRegistry } from './memory.ts';
export { planeRoll } from './plane-roll.ts';
export type { HubRegistration, Registry } from './registry.ts';
export { Roster } from './roster.ts';
