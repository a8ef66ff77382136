export {
  addressBytes,
  addressOf,
  bytesFrom,
  isIP,
  isIPv6,
  isLoopback,
  listeningAt,
  machineAddresses,
  passHeader,
  readProxyHeader,
  remoteOf,
  socketPathOf,
  sourceOf,
} from './addresses.ts';
export {
  Backoff,
  type Clock,
  type Guarded,
  guarding,
  LONGEST_TIMER,
  randomHex,
  Semaphore,
  systemClock,
  within,
} from './async.ts';
export { bind } from './bind.ts';
export { Packing, pushCompact, Waiting } from './buffers.ts';
export { Certificate, certificateOf, renewalIsDue } from './certificates/certificate.ts';
export { isKeyOf, privateKeyIn } from './certificates/keys.ts';
export { addressText, isFor } from './certificates/names.ts';
export { pemBlocks, pemText } from './certificates/pem.ts';
export { CertificatePool, ownChain, type Trust, withIssuers } from './certificates/pool.ts';
export { type RevocationList, readRevocationLists } from './certificates/revocations.ts';
export {
  CertificateRejected,
  type CertificateUse,
  chainsOf,
  faultOfLeaf,
  missingPurpose,
  type Presented,
  presentedBy,
  verify,
} from './certificates/verify.ts';
export {
  countIn,
  deleteFrom,
  Grouped,
  getOrPut,
  LruMap,
  OpenTable,
  Queue,
  RandomSet,
  Ring,
  Rounds,
  type TakesTurns,
} from './collections.ts';
export {
  Admitted,
  SharedBudget,
  WaitingConnections,
  type WaitingLimits,
  WaitingPool,
} from './connection-limits.ts';
export { RUNTIME } from './defaults.ts';
export { lastGood, readAtMost, readNamedFile, reasonOf } from './files.ts';
export { lookupName, names, resolveName } from './resolve.ts';
export { bufferSizes, descriptors, memory, memoryLimit, poolBytes } from './resources.ts';
export {
  answerTo,
  begins,
  beginsWith,
  type ConnectLimits,
  connectFirst,
  connectTo,
  destroyOnceRead,
  keptAlive,
  onceClosed,
  onRead,
  putBack,
  shortReads,
  unlessGivenUp,
  wholeOf,
  writeCoalesced,
} from './sockets.ts';
export { isPrintable, printable, printableJson } from './text.ts';
export {
  type ClientTls,
  checkedPem,
  checkedTls,
  clientTls,
  clientTlsOf,
  connectTls,
  httpsAgent,
  type ReadTls,
  secureContextOptions,
  secured,
  skippedIn,
  sniOf,
  type TlsFiles,
  TlsRenewal,
  type TlsSettings,
  UnusablePem,
} from './tls.ts';
export { boundCaller, UnsentBound } from './unsent-bound.ts';
export { boundKeyUpdates, boundMet, boundVerification } from './verification-bound.ts';
