export { addressOf, bytesFrom, isIP, isIPv6, isLoopback, passHeader, remoteOf } from './addresses.ts';
export { Admitted, type AdmittedLimits } from './admitted.ts';
export { Backoff } from './backoff.ts';
export { beginsWith, putBack } from './begins-with.ts';
export { bind } from './bind.ts';
export { Certificate, certificateOf } from './certificates/certificate.ts';
export { withIssuers } from './certificates/issuers.ts';
export { addressText, isFor } from './certificates/names.ts';
export { CertificatePool, type Trust } from './certificates/pool.ts';
export { presentedBy } from './certificates/presented.ts';
export { signatureIn } from './certificates/signature.ts';
export {
  CertificateRejected,
  type CertificateUse,
  chainsOf,
  faultOfLeaf,
  missingPurpose,
  type Presented,
  verify,
} from './certificates/verify.ts';
export { type Clock, systemClock } from './clock.ts';
export { endAfterPeer, writerOf } from './coalesced-writes.ts';
export { compact, pins, pushCompact } from './compact.ts';
export { connectFirst, connectTo } from './connect-first.ts';
export { type Deferred, deferred } from './deferred.ts';
export { elements as derElements, first as derFirst } from './der.ts';
export { descriptors } from './descriptors.ts';
export { destroyOnceRead } from './destroy-once-read.ts';
export { extended } from './extended.ts';
export { type Guarded, guarding } from './guarded.ts';
export { keptAlive } from './keep-alive.ts';
export { LONGEST_TIMER } from './longest-timer.ts';
export { LruMap } from './lru-map.ts';
export { bufferSizes, memoryLimit } from './memory.ts';
export { OpenTable } from './open-table.ts';
export { Packing } from './packing.ts';
export { randomHex } from './random-hex.ts';
export { RandomSet } from './random-set.ts';
export { lookupName, names, resolveName } from './resolve.ts';
export { Ring } from './ring.ts';
export { Rounds, type TakesTurns } from './rounds.ts';
export { SharedBudget } from './shared-budget.ts';
export { type StrangerLimits, Strangers, StrangersPool, sourceOf } from './strangers.ts';
export { type ClientTls, clientTls, clientTlsOf, connectTls, httpsAgent, secured } from './tls-client.ts';
export { type ReadTls, secureContextOptions, type TlsFiles, type TlsSettings } from './tls-files.ts';
export { TlsRenewal } from './tls-renewal.ts';
export { TurnDuplex } from './turn-duplex.ts';
export { boundMet, boundVerification } from './verification-bound.ts';
export { within } from './within.ts';
