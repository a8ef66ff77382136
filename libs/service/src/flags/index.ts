export { isCipherSuite, opensslCiphers, tlsVersion } from './ciphers.ts';
export { FlagError } from './error.ts';
export type { Flag, FlagTable, Values } from './flag.ts';
export { helpText } from './help.ts';
export { flagsMarkdown } from './markdown.ts';
export { type Environment, type Parsed, parseFlags } from './parse.ts';
export * from './programs.ts';
export { readDuration } from './syntax.ts';
export { parseStrategies } from './topics/server.ts';
