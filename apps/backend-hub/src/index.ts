export { hubRole } from './from-flags.ts';
