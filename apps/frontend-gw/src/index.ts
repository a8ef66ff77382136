export { gatewayRole } from './from-flags.ts';
