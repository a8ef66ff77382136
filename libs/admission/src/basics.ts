// What every server loads, also one without tenants: neither the parsers of tenants' files nor those of tokens.
export { gatewayTenants } from './gateway-tenants.ts';
export { DEFAULT_LIMITS } from './limits.ts';
export { problemMessage, problemText } from './tenant-file/problem-text.ts';
