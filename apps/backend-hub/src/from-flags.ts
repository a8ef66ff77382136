import {
  apiServerAt,
  type HubValues,
  hubSocket,
  parseLabels,
  peerTls,
  portsOfProcess,
  proxyNetworks,
  tlsPolicy,
} from '@isthmus/flags';
import {
  flaggedConnection,
  type KubeClient,
  kubeClient,
  leaseHolder,
  TokenReviews,
  tokenAuthenticator,
} from '@isthmus/kube';
import type { Hub, HubParts } from '@isthmus/plane';
import type { Closing } from '@isthmus/service';
import type { Authenticate } from '@isthmus/transport';
import { type HubOptions, hub } from './hub.ts';

/** Returns a hub's options from its flags. Without a registry it serves only the gateway in its own process. */
function hubOptions(
  flags: HubValues,
  authenticate: Authenticate | undefined,
): Omit<HubOptions, 'registry' | 'directory' | 'changed' | 'observation'> {
  const joins = flags['redis-url'] !== '';
  const tls = { ...tlsPolicy(flags) };
  const count = flags['server-count'];
  const ca = flags['cluster-ca-cert'];
  // Without a CA, agents authenticate with tokens and need no certificate.
  const agentTls = { cert: flags['cluster-cert'], key: flags['cluster-key'], ...(ca !== '' && { ca }), ...tls };
  return {
    hubId: flags['server-id'],
    zone: flags.zone,
    agents: {
      address: { host: flags['agent-bind-address'], port: flags['agent-port'] },
      ...(flags['cluster-cert'] !== '' && { tls: agentTls }),
      proxyNetworks: proxyNetworks(flags),
    },
    ...(joins && {
      peers: {
        host: flags['peer-bind-address'],
        port: flags['peer-port'],
        ...(flags['peer-uds-dir'] !== '' && { socket: hubSocket(flags, flags['advertise-address']) }),
        tls: { ...peerTls(flags), ...tls },
      },
    }),
    advertiseAddress: joins ? flags['advertise-address'] : '',
    advertiseAgentAddress: flags['advertise-agent-address'],
    plane: joins ? flags.plane : '',
    ...(count !== undefined && { serverCount: count }),
    keepaliveTime: flags['keepalive-time'],
    ...(authenticate && { authenticate }),
    ownPorts: portsOfProcess(flags),
    ...(flags['api-server-port'] > 0 && { apiServerPort: flags['api-server-port'] }),
    apiServer: apiServerAt(flags),
    limits: {
      sessions: flags['max-agent-sessions'],
      identifiers: flags['max-agent-identifiers'],
      identifierBytes: flags['max-agent-identifier-bytes'],
      waiting: flags['max-waiting-agents'],
      waitingOfSource: flags['max-waiting-agents-per-source'],
    },
  };
}

/** The Kubernetes API, if the flags ask for reviews of agents' tokens or for a lease that shows that this server runs. */
async function kubeApi(flags: HubValues, closing: Closing): Promise<KubeClient | undefined> {
  if (flags['agent-namespace'] === '' && !flags['enable-lease-controller']) return undefined;
  const client = await kubeClient({
    source: flaggedConnection(flags.kubeconfig),
    qps: flags['kubeconfig-qps'],
    burst: flags['kubeconfig-burst'],
  });
  closing.defer(() => client[Symbol.dispose]());
  return client;
}

function authenticator(flags: HubValues, client: KubeClient): Authenticate {
  const review = tokenAuthenticator({
    client,
    users: { namespace: flags['agent-namespace'], serviceAccount: flags['agent-service-account'] },
    audience: flags['authentication-audience'],
  });
  const reviews = new TokenReviews({ review, rememberMs: flags['token-review-cache-ttl'] });
  return async (token, bearer) => {
    const verdict = await reviews.check(token, bearer);
    if (!verdict.ok) throw new Error(verdict.message);
  };
}

/** Runs a hub from a program's flags. */
export async function hubRole(flags: HubValues, { closing, leases: observer, warn, ...parts }: HubParts): Promise<Hub> {
  const client = await kubeApi(flags, closing);
  const { directory } = parts;
  const running = await hub({
    ...hubOptions(flags, client && flags['agent-namespace'] !== '' ? authenticator(flags, client) : undefined),
    ...parts,
    // A gateway in this process learns of its hub's sessions before the registry does.
    changed: (change) => directory.ownHub !== undefined && directory.apply(change),
  });
  closing.defer(() => running.close());
  if (client && flags['enable-lease-controller']) {
    const [serverId, namespace] = [flags['server-id'], flags['lease-namespace']];
    const lease = leaseHolder({
      client,
      observer,
      warn,
      serverId,
      namespace,
      labels: parseLabels(flags['lease-label']),
    });
    closing.defer(() => lease[Symbol.asyncDispose]());
  }
  return running;
}
