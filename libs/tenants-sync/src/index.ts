export { runSync } from './program.ts';
