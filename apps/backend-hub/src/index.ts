export * from './hub.ts';
