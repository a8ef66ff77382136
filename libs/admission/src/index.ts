export { type Admission, startAdmission } from './admission.ts';
export { gatewayTenants } from './certificate-judge.ts';
export { type Credential, credentialFiles, readCredential } from './credentials.ts';
export { ADMISSION } from './defaults.ts';
export type { Grant } from './grants.ts';
export type { AgentEvidence } from './identify.ts';
export { problemMessage, problemText, type ReadFile, readTenantFile } from './tenant-file.ts';
export type { TenantFile } from './tenant-schema.ts';
export { type Tenant, type TenantSource, Tenants } from './tenants.ts';
