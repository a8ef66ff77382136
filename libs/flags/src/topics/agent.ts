import { randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import { isLoopback } from '@isthmus/runtime';
import { DIRECT } from '@isthmus/tunnel';
import { checkTlsFiles, readFlagFile } from '../files.ts';
import {
  bool,
  countOrAll,
  duration,
  FlagError,
  int,
  names,
  oneOf,
  optionalDuration,
  ownTopic,
  string,
  strings,
  topic,
  type Values,
} from '../flag.ts';
import { readCidr } from '../syntax.ts';
import { adminSocket, QUEUES } from './common.ts';
import { checkId } from './server.ts';

type Warn = (message: string) => void;

export const serverConnection = topic('Server', {
  'proxy-server-host': names(
    ['127.0.0.1'],
    'Names or addresses of servers, hubs or load balancers, separated by commas. The agent connects to each; within a plane, to --session-count hubs.',
  ),
  'proxy-server-port': int(8091, "The server's port for agents."),
  'ca-cert': string(
    '',
    "CA certificates that sign servers' certificates. Without it, only a server on loopback is reached, in plain text.",
  ),
  'agent-cert': string('', 'Client certificate for servers, with its chain.'),
  'agent-key': string('', 'Private key of --agent-cert.'),
  'alpn-proto': strings([], 'Further ALPN names to offer, for load balancers.'),
  'service-account-token-path': string('', 'File with the bearer token for servers, read for each connection.'),
  'keepalive-time': duration(
    3_600_000,
    "How long one of upstream's servers may be silent before it gets a gRPC keepalive ping.",
  ),
  'ping-interval': optionalDuration(
    1000,
    'How long a link to a hub may be silent before a PING: 1s to 5m, in whole seconds. A dead link is noticed after 2.5 times as long, or 4.75 s. See docs/EDGE.md.',
    {
      own: true,
      unset: { text: '1s; up to 10s at rest, if the hub has many agents' },
    },
  ),
});

export const agentIdentity = topic('Identity', {
  'agent-id': string('', 'Unique id of this agent.', {
    unset: { from: (env) => env.PROXY_AGENT_ID || randomUUID(), text: '$PROXY_AGENT_ID, else a new UUID' },
  }),
  'agent-identifiers': string(
    '',
    'What this agent can reach, as a URL query of ipv4, ipv6, host, cidr and default-route: host=db.internal&cidr=10.0.0.0/8.',
  ),
  tenant: string(
    '',
    'The tenant whose callers this agent serves. It leaves a hub that puts it into another. Empty: the one of its credential, or default.',
    { own: true },
  ),
  zone: string('', 'Zone of this agent. It prefers hubs in the same zone.', { own: true }),
});

export const synchronisation = topic('Sessions', {
  'session-count': countOrAll(
    2,
    'Sessions to hold, each to another hub of the plane; all means one to every hub. The agent is ready with one.',
    { own: true },
  ),
  'sync-interval': duration(1000, 'How often to look for servers that are not connected yet.'),
  'sync-interval-cap': duration(
    10_000,
    'Longest pause between attempts to reach a server; 2 s where it refuses connections and the agent has no session.',
  ),
  'probe-interval': duration(1000, 'How often to check that connections are alive.', {
    inert: 'PING finds a silent link',
  }),
  'sync-forever': bool(false, 'Keep looking for servers after all are connected.'),
  'rebalance-time': duration(
    30_000,
    'Sessions move to better hubs at a random moment within this time, or 5/3 of it if they carry tunnels. 0 moves all at once.',
    { own: true },
  ),
  'server-count-source': oneOf(['', 'default', 'max'])(
    'default',
    'Which count of servers to use: default takes Leases if --count-server-leases is set, else what servers report; max the larger.',
  ),
});

export const agentLeases = topic('Leases', {
  'count-server-leases': bool(false, 'Count the servers by their Leases.'),
  'lease-namespace': string('kube-system', 'Namespace of the Leases.'),
  'lease-label-selector': string('k8s-app=konnectivity-server', 'Label selector of the Leases.', {
    oldNames: [{ name: 'lease-label', advice: 'use --lease-label-selector' }],
  }),
});

const ANY_PORT = { lowest: 1, highest: 65_535 } as const;

export const agentHealth = topic('Listening: health, metrics and administration', {
  'health-server-host': string('', 'Address of --health-server-port. Empty for all.'),
  'health-server-port': int(8093, 'TCP port of /healthz, /readyz and /metrics.', {
    port: { bind: 'health-server-host', ...ANY_PORT },
  }),
  ...adminSocket,
  'admin-bind-address': string(
    '127.0.0.1',
    'Address of --admin-server-port. Empty for all. Beyond loopback, the admin RPC needs --admin-server-cert.',
  ),
  'admin-server-port': int(8094, 'TCP port of the admin RPC, /metrics and /debug/pprof.', {
    port: { bind: 'admin-bind-address', ...ANY_PORT },
  }),
});

export const agentDrain = ownTopic('Behaviour', {
  'drain-timeout': optionalDuration(
    0,
    'How long tunnels may take to end after SIGTERM. Then, or at a second signal, they are cut. 0 cuts them at once.',
    {
      unset: { text: 'until the last tunnel has ended; a pod, until its grace period is over' },
    },
  ),
});

export const agentQueues = topic('Behaviour', {
  'xfr-channel-size': int(150, 'Packets queued for each connection.', QUEUES),
  'warn-on-channel-limit': bool(false, 'Warn when a queue is full.', QUEUES),
});

export function checkServerConnection(flags: Values<typeof serverConnection>): void {
  const { 'proxy-server-host': hosts, 'proxy-server-port': port, 'ca-cert': authorities } = flags;
  if (hosts.length === 0 || hosts.includes('')) throw new FlagError('proxy-server-host', 'must not be empty');
  const lower = hosts.map((host) => host.toLowerCase());
  const again = hosts.find((host, index) => lower.indexOf(host.toLowerCase()) < index);
  if (again !== undefined) throw new FlagError('proxy-server-host', `${again} is there twice`);
  if (port < 1 || port > 65_535) throw new FlagError('proxy-server-port', `bad port ${port}: want 1 to 65535`);
  const ping = flags['ping-interval'];
  if (ping !== undefined && (ping < 1000 || ping > 300_000 || ping % 1000 !== 0))
    throw new FlagError('ping-interval', 'want whole seconds, 1s to 5m');
  checkTlsFiles(flags, 'agent-cert', 'agent-key', 'ca-cert');
  const distant = hosts.find((host) => !isLoopback(host));
  if (authorities === '' && distant !== undefined) {
    throw new FlagError(
      'ca-cert',
      `must be set to reach ${distant}: the agent uses plain text only to a server on loopback`,
    );
  }
  if (authorities === '' && flags['agent-cert'] !== '')
    throw new FlagError('ca-cert', 'must be set when --agent-cert is');
  const tokenPath = flags['service-account-token-path'];
  if (tokenPath !== '') readFlagFile('service-account-token-path', tokenPath);
}

export function checkAgentIdentity(flags: Values<typeof agentIdentity>, warn: Warn): void {
  checkId('agent-id', flags['agent-id']);
  if (flags['agent-id'] === DIRECT)
    throw new FlagError('agent-id', `bad id "${DIRECT}": it stands for what gateways dial themselves; choose another`);
  if (flags.tenant !== '' && !/^[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$/.test(flags.tenant)) {
    throw new FlagError(
      'tenant',
      `bad name ${JSON.stringify(flags.tenant)}: want up to 63 letters, digits, dots, dashes, underscores`,
    );
  }
  checkIdentifiers(flags['agent-identifiers'], warn);
}

const IDENTIFIERS: Readonly<Record<string, (value: string) => boolean>> = {
  ipv4: (value) => isIP(value) === 4,
  ipv6: (value) => isIP(value) === 6,
  host: (value) => value !== '',
  cidr: (value) => readCidr(value) !== undefined,
  'default-route': (value) => /^(true|false)$/.test(value),
};

/**
 * Rejects unknown names and texts that are no URL query, as upstream does. Upstream accepts any value, so a bad value only gets a
 * warning.
 */
function checkIdentifiers(query: string, warn: Warn): void {
  for (const pair of query.split('&').filter((part) => part !== '')) {
    const [name = '', value = ''] = pair.split(/=(.*)/s);
    const key = decoded(name);
    const accepts = Object.hasOwn(IDENTIFIERS, key) ? IDENTIFIERS[key] : undefined;
    if (!accepts) {
      const known = Object.keys(IDENTIFIERS).join(', ');
      throw new FlagError('agent-identifiers', `unknown identifier ${JSON.stringify(key)}: want ${known}`);
    }
    const text = decoded(value);
    if (!accepts(text)) warn(`--agent-identifiers: ${JSON.stringify(text)} is not a valid ${key}`);
  }
}

/** Go's url.QueryUnescape, which also rejects semicolons. */
function decoded(text: string): string {
  try {
    if (text.includes(';')) throw new URIError('a semicolon');
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new FlagError('agent-identifiers', `${JSON.stringify(text)} is not valid in a URL query`);
  }
}

export function checkSynchronisation(flags: Values<typeof synchronisation>): void {
  const { 'sync-interval': first, 'sync-interval-cap': cap } = flags;
  if (first > cap) throw new FlagError('sync-interval', 'must not be longer than --sync-interval-cap');
}

// One requirement of a Kubernetes label selector: `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)`, `key>1`. Blanks are single, and there
// is one way to read them: with two, each requirement would double the time that a bad selector takes.
const KEY = String.raw`[A-Za-z0-9][\w./-]*`;

const VALUE = String.raw`(?:[\w.-]+ ?)?`;

const OPERATION = String.raw` ?(?:==?|!=|>|<) ?${VALUE}| (?:in|notin) ?\( ?${VALUE}(?:, ?${VALUE})*\) ?| ?`;

const REQUIREMENT = `(?:! ?${KEY} ?|${KEY}(?:${OPERATION}))`;

const SELECTOR = new RegExp(`^(?: ?${REQUIREMENT}(?:, ?${REQUIREMENT})*)?$`);

export function checkLeaseSelector(flags: Values<typeof agentLeases>): void {
  const selector = flags['lease-label-selector'];
  if (!SELECTOR.test(selector.replaceAll(/\s+/g, ' '))) {
    throw new FlagError(
      'lease-label-selector',
      `bad selector ${JSON.stringify(selector)}: want key=value, or another label selector`,
    );
  }
}
