export { type AgentEvidence, type Authority, authorityOf, type Proven, type TokenJudge } from './authority.ts';
export { TrustSet } from './certificates/trust-set.ts';
export type { Claim } from './claims.ts';
export {
  type Credential,
  type CredentialFile,
  credentialFiles,
  MAX_CREDENTIAL_FILE,
  type ReadCredentials,
  readCredential,
} from './credentials.ts';
export { type Fault, type Grant, Grants, type Standing } from './grants.ts';
export { MAX_TENANT_FILE, type ReadFile, readTenantFile, type UsableFile } from './tenant-file/read.ts';
export type { TenantFile } from './tenant-file/schema.ts';
export { type FileProblems, type Tenant, type TenantSource, Tenants } from './tenants.ts';
export { readToken, type SaidByToken, TokenRejected } from './tokens/claims.ts';
export { TokenIssuers, type TokenWay } from './tokens/issuers.ts';
export { readTokenKeys, type TokenKeys } from './tokens/keys.ts';
export { REVIEW_DEFAULTS } from './tokens/review-rules.ts';
export { UnknownKey } from './tokens/verify.ts';
