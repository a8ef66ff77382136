export { FakeClock } from './fake-clock.ts';
export { type BinaryHeader, binaryHeader } from './proxy-header.ts';
export { DEADLINE_MS, eventually, type True, until, type Wait, within } from './until.ts';
