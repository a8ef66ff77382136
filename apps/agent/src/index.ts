export { type Agent, agent } from './agent.ts';
export { ranking } from './upkeep.ts';
