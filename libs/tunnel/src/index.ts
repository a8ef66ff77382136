export * from './destination.ts';
export * from './dial.ts';
export * from './errors.ts';
export * from './events.ts';
export * from './records.ts';
export * from './trace.ts';
