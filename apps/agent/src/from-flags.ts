import { policyOf } from '@isthmus/admission/policy';
import { type AgentValues, apiServerListening, parseDestinations, resumeOptions } from '@isthmus/flags';
import { machineAddresses, readNamedFile } from '@isthmus/runtime';
import { VERSION } from '@isthmus/service';
import { type Observation, prohibitedBy } from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';

/** Returns an agent's options from its flags. */
export function agentOptions(flags: AgentValues, observation: Observation): AgentOptions {
  const { 'agent-cert': cert, 'agent-key': key, 'ca-cert': ca, 'service-account-token-path': tokenPath } = flags;
  const { lifted, rules } = parseDestinations(flags);
  const resume = resumeOptions(flags);
  return {
    agentId: flags['agent-id'],
    identifiers: flags['agent-identifiers'],
    tenant: flags.tenant,
    zone: flags.zone,
    version: VERSION,
    server: { hosts: flags['proxy-server-host'], port: flags['proxy-server-port'] },
    ...(ca !== '' && { tls: { ca, ...(cert !== '' && { cert, key }) } }),
    alpn: flags['alpn-proto'],
    token: () => (tokenPath === '' ? undefined : readNamedFile(tokenPath).toString().trim()),
    sessionCount: flags['session-count'],
    serverCountSource: flags['server-count-source'] === 'max' ? 'max' : 'default',
    syncInterval: flags['sync-interval'],
    syncIntervalCap: flags['sync-interval-cap'],
    syncForever: flags['sync-forever'],
    rebalanceTime: flags['rebalance-time'],
    keepaliveTime: flags['keepalive-time'],
    pingInterval: flags['ping-interval'],
    ...(resume && { resume }),
    apiServer: apiServerListening(flags),
    prohibited: prohibitedBy({
      ownPorts: [flags['health-server-port'], flags['admin-server-port']],
      ownAddresses: machineAddresses,
      lifted: ['loopback', ...lifted],
    }),
    ...(rules && { lists: policyOf(rules) }),
    observation,
  };
}
