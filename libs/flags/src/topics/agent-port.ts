import { isLoopback } from '@isthmus/runtime';
import { checkTlsFiles } from '../files.ts';
import { duration, FlagError, float32, int, string, topic, type Values } from '../flag.ts';
import { SERVER_PORTS } from './callers.ts';

export const agentListening = topic('Listening: agents', {
  'agent-port': int(8091, 'TCP port for agents.', { port: { bind: 'agent-bind-address', ...SERVER_PORTS } }),
  'agent-bind-address': string('', 'Address of --agent-port. Empty for all.'),
  'keepalive-time': duration(3_600_000, 'How long an agent may be silent before it gets a gRPC keepalive ping.'),
});

export const clusterTls = topic('TLS: agents', {
  'cluster-cert': string(
    '',
    'Certificate of --agent-port, with its chain. Without it, --agent-bind-address must be loopback.',
  ),
  'cluster-key': string('', 'Private key of --cluster-cert.'),
  'cluster-ca-cert': string('', "CA certificates that sign agents' certificates. Set this, or make agents use tokens."),
});

export const agents = topic('Agents', {
  'agent-namespace': string('', 'Namespace of the service account whose token agents must present.'),
  'agent-service-account': string('', 'Name of that service account.'),
  'authentication-audience': string('', 'Audience that the token must have.'),
  'max-agent-sessions': int(100, 'Most sessions of one agent here.', { own: true }),
  'max-agent-identifiers': int(256, 'Most identifiers of one agent.', { own: true }),
  'max-agent-identifier-bytes': int(8192, "Most bytes of one agent's identifiers, as a URL query.", { own: true }),
  'max-waiting-agents': int(2000, 'Most connections to --agent-port that are not authenticated yet.', {
    own: true,
  }),
  'max-waiting-agents-per-source': int(1000, 'Most of those from one IPv4 address or IPv6 /64.', { own: true }),
  'token-review-cache-ttl': duration(
    30_000,
    "How long to cache the API server's answer about a token; a rejection 10 s at most. 0 asks each time.",
    { own: true },
  ),
});

export const kubernetesRate = topic('Kubernetes API', {
  'kubeconfig-qps': float32(0, 'Requests per second to the API server. 0 means 5.'),
  'kubeconfig-burst': int(0, 'Burst of requests to the API server. 0 means 10.'),
});

type Flags = Values<typeof agentListening & typeof clusterTls & typeof agents> & { readonly 'tenants-dir': string };

const LIMITS = [
  'max-agent-sessions',
  'max-agent-identifiers',
  'max-agent-identifier-bytes',
  'max-waiting-agents',
  'max-waiting-agents-per-source',
] as const;

export function checkAgents(flags: Flags, warn: (message: string) => void): void {
  const { 'cluster-cert': cert, 'cluster-ca-cert': authorities, 'agent-bind-address': address } = flags;
  checkTlsFiles(flags, 'cluster-cert', 'cluster-key', 'cluster-ca-cert');
  if (cert === '' && !isLoopback(address)) {
    throw new FlagError(
      'cluster-cert',
      'must be set, unless --agent-bind-address is a loopback address: agents need TLS',
    );
  }
  if (cert === '' && authorities !== '') throw new FlagError('cluster-cert', 'must be set when --cluster-ca-cert is');
  for (const name of LIMITS) {
    if (flags[name] < 1) throw new FlagError(name, `bad number ${flags[name]}: want 1 or more`);
  }
  const withTokens = checkTokens(flags);
  if (authorities === '' && !withTokens && flags['tenants-dir'] === '') {
    warn(
      'agents are not authenticated: set --cluster-ca-cert, or --agent-namespace, --agent-service-account and --authentication-audience',
    );
  }
}

const TOKEN_FLAGS = ['agent-namespace', 'agent-service-account', 'authentication-audience'] as const;

/** Returns whether agents use tokens. */
function checkTokens(flags: Flags): boolean {
  const given = TOKEN_FLAGS.find((name) => flags[name] !== '');
  if (given === undefined) return false;
  if (flags['tenants-dir'] !== '') {
    throw new FlagError(
      given,
      "cannot be combined with --tenants-dir: a tenant's file says who reviews its agents' tokens (agents[].tokenReview)",
    );
  }
  if (flags['cluster-ca-cert'] !== '') {
    throw new FlagError(
      'cluster-ca-cert',
      `cannot be combined with --${given}: agents use either certificates or tokens`,
    );
  }
  const missing = TOKEN_FLAGS.find((name) => flags[name] === '');
  if (missing) throw new FlagError(missing, `must be set when --${given} is`);
  return true;
}
