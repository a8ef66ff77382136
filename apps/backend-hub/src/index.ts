export * from './hub.ts';
export { hubOptions, kubernetes } from './options.ts';
