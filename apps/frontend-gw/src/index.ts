export * from './gateway.ts';
export { hubLinks } from './hub-links.ts';
export { gatewayOptions } from './options.ts';
