import { Agent } from '@isthmus/agent';
import { noTracer, type PlaneEvents } from '@isthmus/tunnel';
import type { FleetSettings } from './messages.ts';

/** The defaults of the agent's flags. */
const SYNC_INTERVAL = 1000;
const SYNC_INTERVAL_CAP = 10_000;

/** Starts one of a fleet's agents in this process. It is a real one, with its own id and sessions. */
export function simulatedAgent(
  number: number,
  { hubPorts, tls, sessionCount, rebalanceTime, members }: FleetSettings,
  events: PlaneEvents,
): Agent {
  const member = members?.[number];
  const { destination } = member ?? {};
  return new Agent({
    agentId: member?.agentId ?? `agent-${number}`,
    identifiers: '',
    tenant: member ? '' : 'default',
    zone: '',
    version: 'simulated',
    server: { hosts: ['127.0.0.1'], port: hubPorts[number % hubPorts.length] as number },
    tls: member ? { ca: tls.ca, cert: member.cert, key: member.key } : tls,
    alpn: [],
    token: () => undefined,
    sessionCount,
    rebalanceTime,
    serverCountSource: 'default',
    syncInterval: SYNC_INTERVAL,
    syncIntervalCap: SYNC_INTERVAL_CAP,
    syncForever: false,
    keepaliveTime: 3_600_000,
    ...(destination && { network: (endpoint) => (request) => endpoint({ ...request, destination }) }),
    observation: { events, tracer: noTracer },
  });
}
