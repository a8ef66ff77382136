export * from './agent.ts';
export { ranking } from './coverage.ts';
