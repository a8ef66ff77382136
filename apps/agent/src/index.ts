export { Agent } from './agent.ts';
export { ranking } from './upkeep.ts';
