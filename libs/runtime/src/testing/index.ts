export { FakeClock } from './fake-clock.ts';
export { keyPair } from './key-pair.ts';
export { etcOf, NameServer, type Said } from './name-server.ts';
export { type BinaryHeader, binaryHeader } from './proxy-header.ts';
export { DEADLINE_MS, eventually, type True, until, type Wait, within } from './until.ts';
