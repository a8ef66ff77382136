import { policyOf } from '@isthmus/admission/policy';
import { type AgentValues, apiServerListening, parseDestinations, resumeOptions } from '@isthmus/flags';
import { lastGood, machineAddresses, readNamedFile } from '@isthmus/runtime';
import { VERSION } from '@isthmus/service';
import { type Observation, type PlaneEvents, prohibitedBy } from '@isthmus/tunnel';
import type { AgentOptions } from './agent.ts';
import { AGENT } from './defaults.ts';

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
    token: tokenPath === '' ? () => undefined : followedToken(tokenPath, observation.events),
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

/** What can be sent as a token: one word. */
const WORD = /^[\x21-\x7e]+$/;

/**
 * Reads the token each time, because it is rotated in place. While its file holds none, perhaps because it is being written, the last token stays
 * in use: a hub ends a link whose message is too long, and takes no empty token.
 */
export function followedToken(path: string, events: PlaneEvents): () => string {
  let before: string | undefined;
  const read = () => {
    const token = readNamedFile(path).toString().trim();
    // The first one is shown whatever it is, as upstream's agent does: its server judges it.
    if (before !== undefined && (token.length > AGENT.tokenCharacters || !WORD.test(token)))
      throw new Error(`${path}: a token is one word of 1 to ${AGENT.tokenCharacters} characters`);
    before = token;
    return token;
  };
  return lastGood(read, (error) => events.emit('certificate:failure', 'uplink', path, error));
}
