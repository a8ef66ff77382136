export { Agent } from './agent.ts';
export { ranking } from './membership.ts';
