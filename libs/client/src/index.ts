export type { Connector, Dispatcher } from './agents.ts';
export { CLIENT } from './defaults.ts';
export { createDialer, type Dialer, type DialerOptions, type DialOptions } from './dialer.ts';
export { DialError, type DialErrorCode } from './errors.ts';
export type { Credentials } from './gateways.ts';
