import { randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import { PROHIBITIONS, type Prohibition } from '@isthmus/tunnel';
import { FlagError } from '../error.ts';
import { checkAuthorities, checkKeyPair, readNamedFile } from '../files.ts';
import { bool, countOrAll, duration, int, oneOf, string, strings, topic, type Values } from '../flag.ts';
import { isLoopback } from '../loopback.ts';
import { checkId } from './server.ts';

export const serverConnection = topic('Server', {
  'proxy-server-host': string('127.0.0.1', 'Name or address of the server, a hub or the load balancer before them.'),
  'proxy-server-port': int(8091, "The server's port for agents."),
  'ca-cert': string(
    '',
    "Authorities of servers' certificates (PEM). Without it, only a server on loopback is dialled, in plain text.",
  ),
  'agent-cert': string('', 'Certificate shown to servers (PEM, with its chain).'),
  'agent-key': string('', 'Private key of --agent-cert (PEM).'),
  'alpn-proto': strings([], 'ALPN names to offer beside the usual ones, for balancers that route by them.'),
  'service-account-token-path': string('', 'File with the token shown to servers; read anew for each connection.'),
  'keepalive-time': duration(3_600_000, 'How long a server may be silent before it is sent a gRPC keepalive ping.'),
});

export const agentIdentity = topic('Identity', {
  'agent-id': string('', 'Unique id of this agent.', {
    unset: { from: (env) => env.PROXY_AGENT_ID || randomUUID(), text: '$PROXY_AGENT_ID, else a new UUID' },
  }),
  'agent-identifiers': string(
    '',
    'What this agent reaches, as a URL query of ipv4, ipv6, host, cidr and default-route: host=db.internal&cidr=10.0.0.0/8.',
  ),
  tenant: string('default', 'The tenant whose callers this agent serves.', { own: true }),
  zone: string('', 'Where this agent runs. It prefers hubs of its own zone.', { own: true }),
});

export const synchronisation = topic('Sessions', {
  'session-count': countOrAll(
    2,
    'Sessions to hold, each to another hub of the plane, or all for one to every hub. One makes the agent ready; /readyz?verbose says how many there are.',
    { own: true },
  ),
  'sync-interval': duration(1000, 'How often to look for servers that are not connected yet.'),
  'sync-interval-cap': duration(10_000, 'Longest pause between attempts while a server cannot be reached.'),
  'probe-interval': duration(1000, 'How often to check that connections are alive.', {
    inert: 'a connection says itself when it ends, and one that falls silent is found by PING within 3 s',
  }),
  'sync-forever': bool(false, 'Go on looking for servers after all are connected.'),
  'rebalance-time': duration(
    30_000,
    'Within what time sessions move to hubs that are better for them, such as one that joined: at a random moment of it. ' +
      'Sessions that carry tunnels take 5/3 of it. 0 for at once, all agents together.',
    { own: true },
  ),
  'server-count-source': oneOf(['', 'default', 'max'])(
    'default',
    'Which count of servers holds: default for that of Leases if there are any, else of the answers; max for the greater.',
  ),
});

export const agentLeases = topic('Leases', {
  'count-server-leases': bool(false, 'Count servers by their Leases.'),
  'lease-namespace': string('kube-system', 'Namespace of the Leases.'),
  'lease-label-selector': string('k8s-app=konnectivity-server', 'Label selector of the Leases.', {
    oldNames: [{ name: 'lease-label', advice: 'use --lease-label-selector' }],
  }),
});

export const agentKubernetes = topic('Kubernetes API', {
  kubeconfig: string('', "Path of a kubeconfig file. Empty for the pod's own service account."),
});

const ANY_PORT = { lowest: 1, highest: 65_535 } as const;

export const agentHealth = topic('Listening: health, metrics and administration', {
  'health-server-host': string('', 'Address of --health-server-port. Empty for all.'),
  'health-server-port': int(8093, 'TCP port of /healthz, /readyz and /metrics.', {
    port: { bind: 'health-server-host', ...ANY_PORT },
  }),
  'admin-bind-address': string(
    '127.0.0.1',
    'Address of --admin-server-port. Empty for all. See --admin-server-cert for one that is not loopback.',
  ),
  'admin-server-port': int(8094, 'TCP port of the admin RPC, /metrics and /debug/pprof.', {
    port: { bind: 'admin-bind-address', ...ANY_PORT },
  }),
});

export const agentQueues = topic('Behaviour', {
  'xfr-channel-size': int(150, 'Packets queued for each connection.', {
    inert: 'queues are bounded by bytes, and windows grow with what their reader takes',
  }),
  'warn-on-channel-limit': bool(false, 'Warn when a queue is full.', {
    inert: 'what waits for slow readers is bounded by bytes, and metrics tell of it',
  }),
});

export const destinations = topic('Behaviour', {
  'allow-destinations': strings(
    [],
    `What this agent dials all the same: a comma list of ${PROHIBITIONS.join(', ')}. Without it no tunnel leads to its own health and admin ports, to link-local addresses, or to the metadata services of clouds.`,
    { own: true },
  ),
});

/** @throws FlagError */
export function parseProhibitions(names: readonly string[]): Prohibition[] {
  return names.map((name) => {
    const known = PROHIBITIONS.find((each) => each === name);
    if (known) return known;
    throw new FlagError('allow-destinations', `unknown name ${JSON.stringify(name)}: want ${PROHIBITIONS.join(', ')}`);
  });
}

type Warn = (message: string) => void;

export function checkServerConnection(flags: Values<typeof serverConnection>): void {
  const { 'proxy-server-host': host, 'proxy-server-port': port, 'ca-cert': authorities } = flags;
  if (host === '') throw new FlagError('proxy-server-host', 'must not be empty');
  if (port < 1 || port > 65_535) throw new FlagError('proxy-server-port', `bad port ${port}: want 1 to 65535`);
  checkKeyPair('agent-cert', flags['agent-cert'], 'agent-key', flags['agent-key']);
  checkAuthorities('ca-cert', authorities);
  if (authorities === '' && !isLoopback(host)) {
    throw new FlagError('ca-cert', `must be set to reach ${host}: plain text goes to a server on loopback alone`);
  }
  if (authorities === '' && flags['agent-cert'] !== '')
    throw new FlagError('ca-cert', 'must be set when --agent-cert is');
  const tokenPath = flags['service-account-token-path'];
  if (tokenPath !== '') readNamedFile('service-account-token-path', tokenPath);
}

export function checkAgentIdentity(flags: Values<typeof agentIdentity>, warn: Warn): void {
  checkId('agent-id', flags['agent-id']);
  if (!/^[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$/.test(flags.tenant)) {
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
  cidr: isCidr,
  'default-route': (value) => /^(true|false)$/.test(value),
};

/**
 * Rejects unknown names and texts that are no URL query, as upstream does. Upstream accepts any value, so a bad value only gets a
 * warning.
 */
function checkIdentifiers(query: string, warn: Warn): void {
  for (const pair of query.split('&').filter((part) => part !== '')) {
    const [name, value] = pair.includes('=') ? split(pair) : [pair, ''];
    const key = decoded(name);
    const accepts = Object.hasOwn(IDENTIFIERS, key) ? IDENTIFIERS[key] : undefined;
    if (!accepts) {
      const known = Object.keys(IDENTIFIERS).join(', ');
      throw new FlagError('agent-identifiers', `unknown identifier ${JSON.stringify(key)}: want ${known}`);
    }
    const text = decoded(value);
    if (!accepts(text)) warn(`--agent-identifiers: ${JSON.stringify(text)} is no ${key}`);
  }
}

function split(pair: string): [string, string] {
  const at = pair.indexOf('=');
  return [pair.slice(0, at), pair.slice(at + 1)];
}

/** Go's url.QueryUnescape, which also rejects semicolons. */
function decoded(text: string): string {
  try {
    if (text.includes(';')) throw new URIError('a semicolon');
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new FlagError('agent-identifiers', `${JSON.stringify(text)} is no part of a URL query`);
  }
}

function isCidr(text: string): boolean {
  const [, address = '', bits] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(bits) <= (family === 4 ? 32 : 128);
}

export function checkSynchronisation(flags: Values<typeof synchronisation>): void {
  const { 'sync-interval': first, 'sync-interval-cap': cap } = flags;
  if (first > cap) throw new FlagError('sync-interval', 'must not be longer than --sync-interval-cap');
}

// One requirement of a Kubernetes label selector: `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)`, `key>1`.
const KEY = String.raw`[A-Za-z0-9][\w./-]*`;
const VALUE = String.raw`[\w.-]*`;
const REQUIREMENT = String.raw`\s*(?:!\s*${KEY}|${KEY}(?:\s*(?:=|==|!=|>|<)\s*${VALUE}|\s+(?:in|notin)\s*\(\s*${VALUE}(?:\s*,\s*${VALUE})*\s*\))?)\s*`;
const SELECTOR = new RegExp(`^(?:${REQUIREMENT}(?:,${REQUIREMENT})*)?$`);

export function checkLeaseSelector(flags: Values<typeof agentLeases>): void {
  const selector = flags['lease-label-selector'];
  if (!SELECTOR.test(selector)) {
    throw new FlagError(
      'lease-label-selector',
      `bad selector ${JSON.stringify(selector)}: want key=value, or another label selector`,
    );
  }
}
