export { gatewayRole } from './role.ts';
