export { hubRole } from './role.ts';
