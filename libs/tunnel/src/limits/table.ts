interface TenantLimitEntry {
  /** How many, where a tenant's file says nothing. A healthy cluster of 5,000 nodes stays below all of them. */
  readonly default: number;
  /** In bytes: a file may say `64MiB`. Unset: a count. */
  readonly bytes?: true;
  /** What a tenant's file says of it. */
  readonly help: string;
  /** Of a gateway's dials and bytes: what is in use at one moment, or a rate. Unset: of agents, at hubs, or not shown by itself. */
  readonly of?: 'gauge' | 'rate';
  /**
   * The HTTP status of a dial that it refuses: 429 (RFC 6585 section 4) for a rate, because the same dial succeeds a little later, at this
   * gateway too.
   */
  readonly refuses?: 429 | 503;
  /** Where to see who uses it: a command without its tenant, and what it shows. */
  readonly holders?: readonly [command: string, shows: string];
}

/**
 * What one tenant may use of one process. The fields of a tenant's file, their defaults, metrics and what operators read follow from this
 * table. `DialLimiter` and `ByteMeter` enforce those of dials and bytes, hubs those of agents.
 */
export const TENANT_LIMITS = {
  agents: { default: 10_000, help: 'Agents with a session at one hub.' },
  sessionsPerAgent: { default: 50, help: 'Sessions of one agent at one hub.' },
  sessions: { default: 100_000, help: 'Sessions at one hub.' },
  identifiers: { default: 1000, help: 'Identifiers of one session.' },
  renewalsPerSecond: { default: 200, help: 'Fresh tokens that are verified for open sessions, and as many at once.' },
  apiServerConnections: {
    default: 50_000,
    help: 'Connections to its API server of one hub or gateway (apiServer). Further ones are reset.',
  },
  apiServerConnectionsPerSecond: {
    default: 2000,
    help: 'Of these, new ones a second; twice as many at once after a quiet time. Further ones are reset.',
  },
  dialsPerSecond: {
    default: 2000,
    help: 'Dials a second. Further ones get 429.',
    of: 'rate',
    refuses: 429,
    holders: ['isthmus watch', 'shows who dials in a loop'],
  },
  /** The size of the bucket. A file that sets only `dialsPerSecond` has twice as many. */
  burst: { default: 4000, help: 'Dials at once after a quiet time. Then dialsPerSecond of them a second.' },
  pendingDials: {
    default: 2000,
    help: "Dials and attaches without an answer, and callers' gRPC streams that have yet to dial. Further ones get 503.",
    of: 'gauge',
    refuses: 503,
    holders: ['isthmus watch', 'shows the slowest dials: they say what stalls'],
  },
  tunnels: {
    default: 50_000,
    help: 'Tunnels, and dials without an answer. Further ones get 503.',
    of: 'gauge',
    refuses: 503,
    holders: [
      'isthmus tunnels --sort age',
      'and the console list who holds them: end those that leak (isthmus kick tunnel)',
    ],
  },
  bytesPerSecond: {
    default: Number.POSITIVE_INFINITY,
    help: "Bytes of all tunnels a second, both ways together: tunnels pause, nothing is dropped. At a hub, of its API server's connections. Default: no limit.",
    bytes: true,
    of: 'rate',
    holders: ['isthmus tunnels', 'shows who transfers most'],
  },
  bytesQueued: {
    default: 256 * 1024 * 1024,
    help: 'Bytes that wait for readers slower than their senders. Until they take some, no tunnel is read, and dials get 503.',
    bytes: true,
    of: 'gauge',
    refuses: 503,
    holders: ['isthmus tunnels', 'shows whose reader stalls'],
  },
} as const satisfies Record<string, TenantLimitEntry>;

type Table = typeof TENANT_LIMITS;
export type TenantLimit = keyof Table;

/** The names of the limits that have a field, or a field with that value. */
type Having<Field> = { [Name in TenantLimit]: Table[Name] extends Field ? Name : never }[TenantLimit];

/** Those of a gateway's dials and bytes that have a use to show. */
export type UsedLimit = Having<{ readonly of: string }>;
export type RefusingLimit = Having<{ readonly refuses: number }>;

/** One tenant's limits. Read at each use, so that a change takes effect at once. */
export type TenantLimits = Readonly<Record<TenantLimit, number>>;
/** Those that a gateway enforces. */
export type DialLimits = Pick<TenantLimits, UsedLimit | RefusingLimit | 'burst'>;

export const LIMIT_ENTRIES = Object.entries(TENANT_LIMITS) as [TenantLimit, TenantLimitEntry][];

export const DEFAULT_LIMITS = Object.fromEntries(
  LIMIT_ENTRIES.map(([name, entry]) => [name, entry.default]),
) as TenantLimits;

function namesOf<Name extends TenantLimit>(wanted: (entry: TenantLimitEntry) => unknown): readonly Name[] {
  return LIMIT_ENTRIES.filter(([, entry]) => wanted(entry)).map(([name]) => name as Name);
}

export const GAUGE_LIMITS = namesOf<UsedLimit>(({ of }) => of === 'gauge');
export const USED_LIMITS = namesOf<UsedLimit>(({ of }) => of);
export const REFUSING_LIMITS = namesOf<RefusingLimit>(({ refuses }) => refuses);
