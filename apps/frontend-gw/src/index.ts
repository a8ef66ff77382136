export * from './gateway.ts';
export { gatewayOptions } from './options.ts';
export { PlaneView } from './plane-view.ts';
