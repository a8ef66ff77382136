/** Times, sizes and counts of admission: times in milliseconds unless their name says otherwise, sizes in bytes. */
export const ADMISSION = {
  /**
   * How often the tenants' files are checked for changes. They are polled, because notifications (inotify) miss changes of a mounted ConfigMap,
   * whose files are links into a directory that is replaced.
   */
  tenantsPollMs: 2000,
  /** How often the program's own CA bundles are checked for changes: one that is written in place is in force after 4 to 8 s. */
  bundlesPollMs: 4000,
  /** A file that is written in place without a pause is read after so many looks that found it changed, though it may be incomplete. */
  laterStates: 5,
  /** The most files of --tenants-dir. More would not load within 20 s; further ones are named as a problem. */
  tenantFiles: 10_000,
  /** A sync that has not written its report for this long is taken for dead. It writes it every minute. */
  syncSilentMs: 300_000,
  /** The largest report of a sync. A fault of one object takes some 200 bytes. */
  syncReportBytes: 4 * 1024 * 1024,
  /** The largest tenant's file. */
  tenantFileBytes: 256 * 1024,
  /** Faults of a tenant's file that are told one by one. */
  problemsOfFile: 20,
  /** The largest file that a tenant's file names. */
  credentialFileBytes: 1024 * 1024,
  /** The largest file of revocation lists: 100,000 certificates. */
  revocationsFileBytes: 4 * 1024 * 1024,
  /** Tenants' files that are checked in one tick of the event loop. It takes 1 ms, or 20 ms if each has changed. */
  tenantsATick: 20,
  /** Files named by tenants' files that are checked in one tick of the event loop. It takes 1 ms. */
  credentialFilesATick: 100,
  /**
   * How often an update tries again what clashed between tenants' files, as long as something fits. Only files that each wait for the next one
   * need more than a few; what is left is tried again with the next update.
   */
  clashTries: 10,
  /** The longest list in a tenant's file, in entries. */
  listEntries: 1000,
  /** The longest text in a tenant's file, in characters. */
  textCharacters: 4096,
  /** The longest `expiryGraceSeconds` of a tenant's file: a week. */
  graceSeconds: 604_800,
  /** A tenant's dial rules as JSON. Hubs send them to agents as one control message, which may have 256 KiB. */
  dialRulesBytes: 128 * 1024,
  /** The most certificates of one CA bundle. */
  authorities: 50,

  /** How often credentials that have expired are looked for. A timer for the next expiry would be wrong when the clock is set. */
  expiryMs: 4000,
  /** How long a review of what was granted may hold up the process at a time, after tenants' files have changed. */
  reviewTurnMs: 5,
  /** How many grants are reviewed between two looks at the clock. */
  grantsALook: 50,

  /** The longest token, in characters: Kubernetes' service account tokens have about 1,000. */
  tokenCharacters: 16 * 1024,
  /** The most audiences of a token, each of which is compared with each tenant's. Kubernetes' tokens have one to three. */
  audiences: 32,
  /** The longest quote of a token's text in an error, in characters. */
  quoteCharacters: 200,
  /** How far a token's issuer's clock may differ, in seconds. */
  clockToleranceSeconds: 10,
  /** The most keys of one issuer. Rotation needs two or three. */
  issuerKeys: 20,
  /** The longest modulus of an issuer's RSA key, in bits: a tenant chooses its keys, and the largest cost a hundred times as much. */
  issuerRsaBits: 8192,
  /** The longest exponent of such a key, in bits. Issuers have 65537. */
  issuerExponentBits: 32,
  /** Tokens that are remembered because no key had signed them, in 32 bytes each: agents with a wrong token come again and again. */
  failedTokens: 1000,
  /** The most keys of one tenant that are tried for a token: keys with its key id, or any if it names none. */
  keysOfTenant: 4,
  /** The same where the server name, port or --tenant says whose the token is: then no other tenant's keys are tried. */
  keysOfKnownTenant: 8,
  /** The most tenants whose keys are tried for a token. A verification takes up to 0.2 ms, and anyone may send tokens. */
  tenantsOfToken: 8,

  /** How often it is checked which issuers' key URLs are due. */
  keysLookMs: 5000,
  /** How often the keys at a URL are fetched. Issuers announce a new key an hour or more before they sign with it. */
  keysMs: 300_000,
  /** The shortest time between two fetches of a URL, even if many tokens name an unknown key. */
  keysAgainMs: 10_000,
  /** How long one fetch of keys may take. */
  keysFetchMs: 5000,
  /** Fetches of keys that run at once, for all tenants. Others wait; one that hangs keeps its place for 5 s. */
  keysFetches: 32,
  /** How many of them one tenant may have. */
  keysFetchesOfTenant: 8,
  /** The longest answer with keys. Twenty keys take 10 KB. */
  keysAnswerBytes: 1024 * 1024,
  /** For a token with an unknown key id, the keys of at most so many tenants are fetched. More need a server name or port of their own. */
  tenantsSought: 4,
  /** How long a token waits for new keys. Its agent waits for 10 s. */
  keysWaitMs: 6000,

  /** How long one review of a token by a tenant's API server may take. An agent waits for 10 s. */
  tokenReviewMs: 4000,
  /** The longest answer to one: it repeats the token, and names the user with its groups. */
  tokenReviewBytes: 256 * 1024,
  /** Reviews of one tenant's tokens a second. 500 agents that return together wait 24 s at most. */
  tokenReviewsPerSecond: 20,
  /** Reviews of one tenant's tokens at once, after a quiet time. */
  tokenReviewsBurst: 40,
  /** Tokens of one tenant that may wait for their review. Each holds one of the connections that may wait (--max-waiting-agents). */
  tokenReviewsWaiting: 200,
  /** After this many failures in a row, a tenant's API server is asked nothing for a while, and tokens are refused at once. */
  tokenReviewFailures: 3,
  /** How long it is asked nothing. Then one token asks, and the others wait for its result. */
  tokenReviewRestMs: 10_000,
  /**
   * Tenants' API servers whose answers and connections are kept: so many that have accepted a token, and as many that have not, so that
   * strangers' tokens cannot push out a tenant's answers. One more replaces the one of its kind that was used longest ago.
   */
  tokenReviewers: 500,
  /** How long an API server's answer about a caller's token is valid at a gateway, which has no flag for it. A rejection: 10 s at most. */
  reviewsRememberedMs: 30_000,
  /** How many API servers are asked about one token. */
  tokenReviewServers: 2,

  /** How often a tenant's API server is asked for its nodes at most, if somebody asks for what to scrape. Prometheus asks every minute. */
  nodesMs: 30_000,
  /** How long an answer waits for API servers that were never asked before. */
  nodesFirstMs: 3000,
  /** API servers that are asked for their nodes at once. */
  nodeLooks: 16,
  /** How many of them one tenant may have. */
  nodeLooksOfTenant: 4,
  /** How long one call for a page of nodes may take. */
  nodesCallMs: 5000,
  /** How long all pages of one API server may take. */
  nodesLookMs: 30_000,
  /** Nodes in a page, of 10 to 40 KB each. */
  nodesAPage: 100,
  /** The longest page of nodes. */
  nodesPageBytes: 8 * 1024 * 1024,
  /** The most nodes of one API server: twice as many as Kubernetes supports. */
  nodes: 10_000,
};
