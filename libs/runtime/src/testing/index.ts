export { FakeClock } from './fake-clock.ts';
export { DEADLINE_MS, eventually, type True, until, type Wait, within } from './until.ts';
