// One process of the simulated fleet: many agents, each a real one with its own id and sessions.
import { Agent } from '@isthmus/agent';
import { planeEvents } from '@isthmus/tunnel';
import type { FleetSettings, ToWorker, WorkerReport } from './messages.ts';

/**
 * How many agents connect for the first time at once. Each real one has its own processor for its handshakes. These share one: if they
 * all connected at once, the last would time out before its turn came.
 */
const STARTING = 25;

/** The defaults of the agent's flags. */
const SYNC_INTERVAL = 1000;
const SYNC_INTERVAL_CAP = 10_000;

const agents = new Map<number, Agent>();
/** Numbers of the agents that have yet to start. */
const waiting: number[] = [];
let starting = 0;
let wanted = 0;
let opened: [at: number, hubId: string][] = [];
let failures: Record<string, number> = {};
let losses: Record<string, number> = {};

function startWaiting(settings: FleetSettings): void {
  for (; starting < STARTING; starting++) {
    const number = waiting.shift();
    if (number === undefined) return;
    let missing = settings.sessionCount;
    const connected = () => {
      if (--missing !== 0) return;
      starting--;
      startWaiting(settings);
    };
    agents.set(number, start(number, settings, connected));
  }
}

/** Starts one of the fleet's agents. @param connected called for each session that opens */
function start(number: number, settings: FleetSettings, connected: () => void): Agent {
  const { hubPorts, tls, sessionCount, rebalanceTime, members } = settings;
  const events = planeEvents();
  events.on('server:open', ({ serverId }) => {
    opened.push([Date.now(), serverId]);
    connected();
  });
  events.on('server:close', (_server, reason) => count(losses, reason));
  events.on('server:failure', (_address, at, error) => {
    if (at === 'connecting') count(failures, error.message);
  });
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
    observation: { events },
  });
}

function count(counts: Record<string, number>, text: string): void {
  counts[text] = (counts[text] ?? 0) + 1;
}

function report(): WorkerReport {
  const sessions: Record<string, number> = {};
  let covered = 0;
  for (const { uplinks } of agents.values()) {
    if (uplinks.length >= wanted) covered++;
    for (const { serverId } of uplinks) sessions[serverId] = (sessions[serverId] ?? 0) + 1;
  }
  const told = { agents: agents.size, covered, sessions, opened, failures, losses };
  opened = [];
  failures = {};
  losses = {};
  return told;
}

process.on('message', (message: ToWorker) => {
  if (message.type === 'report') {
    process.send?.(report());
    return;
  }
  if (message.type === 'stop') {
    for (const number of message.numbers) {
      const agent = agents.get(number);
      agents.delete(number);
      void agent?.drain().then(() => agent.close());
    }
    return;
  }
  const { from, to, step, settings } = message;
  wanted = settings.sessionCount;
  for (let number = from; number < to; number += step) waiting.push(number);
  startWaiting(settings);
});
// The process that started the fleet is gone.
process.on('disconnect', () => process.exit(1));
