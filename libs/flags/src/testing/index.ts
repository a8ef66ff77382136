/** Makes tables of flags, for tests of what programs do with theirs. */
export { bool, duration, int, moduleSpec, string, topic } from '../flag.ts';
