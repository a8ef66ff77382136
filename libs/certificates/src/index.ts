export { CertificateAuthority, type Hosts, type IdentityTexts, LOOPBACK, selfSigned, type Use } from './authority.ts';
