/** Times and counts of a server with tenants: times in milliseconds. */
export const PLANE = {
  /** Tenants' server certificates that are kept ready, of 60 KB each. The one used longest ago is dropped, and made again when a peer asks for it. */
  readyCertificates: 512,
  /** How soon a tenant's own port or unix socket that cannot be opened is tried again. A change of tenants must be in effect within 5 s. */
  tenantPortRetryMs: 1000,
  /** How many files with problems, and how many ports that are not open, the readiness check lists one by one. */
  listedProblems: 5,
  /** How many problems of tenants' files become notices of a server. `isthmus tenants` shows all. */
  notices: 10,
  /** Characters of the digest of a tenant's file, by which operators see that two members have read different ones. */
  stateDigest: 12,
  /** Members that a question is passed to, one after the other, until one has a link to its addressee. */
  neighboursAsked: 3,
  /** How long the first may be silent before the next is asked too. */
  neighbourMs: 300,
};
