export { type Gateway, type GatewayOptions, gateway } from './gateway.ts';
export { gatewayInstruments } from './instruments.ts';
export { gatewayOptions } from './options.ts';
export { PlaneView } from './plane-view.ts';
