export type { Connector, Dispatcher } from './agents.ts';
export { CLIENT } from './defaults.ts';
export { createDialer, type Dialer, type DialerOptions, type DialOptions } from './dialer.ts';
export { type Credentials, DialError, type DialErrorCode } from './gateways.ts';
