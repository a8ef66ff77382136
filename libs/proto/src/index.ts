export * from './packet.ts';
