export * from './gateway.ts';
export { gatewayOptions } from './options.ts';
