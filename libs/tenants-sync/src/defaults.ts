/** Times, sizes and counts of isthmus tenants sync: times in milliseconds, sizes in bytes. */
export const SYNC = {
  /** How long changes are gathered before they are written: what belongs together, as a tenant and its secrets, mostly arrives together. */
  gatherMs: 200,
  /** Tenants that are composed in one tick of the event loop. It takes 5 ms. */
  tenantsATick: 10,
  /** Known tenants of one namespace that are composed before what has changed meanwhile is written. It takes 0.2 s. */
  tenantsARound: 1000,
  /** An object that two complete lists lack, this far apart, is gone, although nobody has seen it deleted. */
  absentMs: 3_600_000,
  /** More writes than an etcd takes between two lists: a version that is further ahead is one of a restored etcd. */
  restoredWrites: 100_000_000,
  /** How often it is looked whether a deleted tenant's grace is over. */
  graceLookMs: 1000,
  /** How long files stay that no tenant's file names any more: a member may just be reading them. */
  oldFilesMs: 60_000,
  /** The largest value of a secret or config map that is kept, and the largest spec: a CA bundle has a few KiB, a revocation list some 100. */
  valueBytes: 256 * 1024,
  /** What is kept of all objects of a kind of one namespace together. Who may create them there fills no more than this. */
  namespaceBytes: 4 * 1024 * 1024,
  /** How many they may be, with their keys and allowed namespaces. Each takes some 100 bytes to 1 KiB, whatever its value has. */
  namespaceEntries: 10_000,
  /** How many tenants a namespace may have: half of what members read. */
  namespaceTenants: 5000,
  /** What the files that tenants of one namespace name may take on the disk together: a file takes 4 KiB or more. The chart's directory has 128 MiB. */
  namespaceFilesBytes: 32 * 1024 * 1024,
  /** What the smallest file takes there. */
  blockBytes: 4096,
  /** The shortest time between two lists of kinds of which more can be kept than before. A long one takes 3 s. */
  freedMs: 20_000,
  /** The longest text of what is wrong with an object. One can name hundreds of secrets that are not there, and all members read of it. */
  faultCharacters: 2000,
  /** The longest status that counts. The longest of ours has 7,000 characters; a longer one is written anew. */
  statusCharacters: 16_384,
  /** The most objects of which the report says what is wrong, 3 MB at most: members read 4 MiB of it. */
  reportFaults: 500,
  /** How often the report in the directory is written again though nothing has changed: members then know that the sync runs. */
  reportMs: 60_000,
  /** Calls of the API server a second. At rest there are some 0.3 a second, for the lease and for watches that begin again. */
  qps: 50,
  /** Calls of it at once. */
  burst: 100,
  /** Calls a second that write status. A start with 1,000 tenants takes a minute of them. */
  statusQps: 20,
  /** Statuses that are written at the same time. */
  statusesAtOnce: 4,
  /** The shortest time between two checks of one ClusterProfile. Somebody may have deleted or changed what was written. */
  profileMs: 60_000,
  /** The shortest time between two checks of any. With 1,000, each has its turn every 8 min, by 2 calls a second. */
  profileLookMs: 500,
  /** How often one tenant's status is written at most. */
  statusMs: 10_000,
  /** How often a member is asked what the plane has of each tenant. With 1,000 tenants, each member answers with 1 MB. */
  askMs: 30_000,
  /** How long a written file may take to be in force at members. What they say sooner may be about the file before. */
  inForceMs: 5000,
  /** How long the member may take for its answer. */
  memberMs: 5000,
  /** The longest answer of a member: 1,000 tenants take 1 MB. */
  memberBytes: 32 * 1024 * 1024,
};
