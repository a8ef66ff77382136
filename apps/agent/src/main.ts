import {
  type AdminBackend,
  answersOf,
  CertificateEnds,
  type ConnectedServer,
  type Identity,
  type Notice,
  operations,
  Recent,
} from '@isthmus/admin';
import { type AgentValues, adminTls, proxyAgent } from '@isthmus/flags';
import {
  cutEvent,
  deletionCost,
  flaggedConnection,
  type KubeClient,
  kubeClient,
  LeaseCounter,
  type LeaseCountObserver,
  podOf,
} from '@isthmus/kube';
import { boundVerification } from '@isthmus/runtime';
import {
  AGENT_UNREADY,
  admissionCheck,
  type Check,
  Closing,
  type Context,
  type Running,
  runProgram,
  VERSION,
} from '@isthmus/service';
import { agentMetrics, createLogger, exportMetrics, instrument, type ProgramLogger } from '@isthmus/telemetry';
import { proxyFromEnvironment, tlsServer, watchCertificate } from '@isthmus/transport';
import { type Ask, formatDestination, PlaneEnded } from '@isthmus/tunnel';
import { Agent } from './agent.ts';
import { AGENT } from './defaults.ts';
import { agentOptions } from './from-flags.ts';
import type { Uplink } from './uplink.ts';

/** Runs proxy-agent from its flags. */
function startAgent(flags: AgentValues, { log, flags: inForce }: Context<ProgramLogger>): Promise<Running> {
  boundVerification((message) => log.warn({}, message));
  return Closing.guard(async (closing) => {
    const source = { program: 'proxy-agent', role: 'agent', version: VERSION } as const;
    const audit = { process: flags['agent-id'], of: { dials: false, others: true }, log: flags['audit-log'] };
    const { events, observation, tunnels } = await instrument({ ...source, log, audit }, closing);
    const recent = new Recent(events, { role: 'agent', id: flags['agent-id'] });
    const certificates = new CertificateEnds(events);
    const metrics = agentMetrics({ events, tunnels }, { process: true });
    closing.defer(metrics.close);
    closing.defer(await exportMetrics(metrics, { ...source, process: flags['agent-id'], logger: log }));
    const leases = await countLeases(flags, closing, metrics.leases, (message) => log.warn({}, message));
    const proxy = proxyFromEnvironment(process.env);
    const options = { ...agentOptions(flags, observation), ...(proxy && { proxy }) };
    for (const host of options.server.hosts) {
      const through = proxy?.({ host, port: options.server.port });
      if (through) log.info({ proxy: through.name, host }, 'HTTPS_PROXY: this server is reached through a proxy');
    }
    let failure: Failure | undefined;
    events.on('server:failure', (address, _at, error) => {
      failure = { text: `${address}: ${error.message}`, at: performance.now() };
    });
    let answers: Ask | undefined;
    const running = new Agent({
      ...options,
      answer(question, signal) {
        if (!answers) throw new Error('it is starting');
        return answers(question, signal);
      },
      ...(leases && { leases: () => leases.count() }),
    });
    closing.defer(() => running.close());
    metrics.measure(running);
    await running.listen();
    const ends = await inPod(
      flags,
      closing,
      () => tunnels.size,
      (message) => log.info({}, message),
    );
    if (options.tls) closing.defer(watchCertificate({ where: 'uplink', files: options.tls, events }));
    let draining = false;
    const drain = () => {
      if (!draining) {
        const endsIdle = tunnels.endIdle('agent', flags['drain-idle-timeout']);
        closing.defer(() => endsIdle[Symbol.dispose]());
      }
      draining = true;
      return running.drain();
    };
    const adminFiles = adminTls(flags);
    const backend: AdminBackend = {
      identity: identity(flags),
      admission: () => (draining ? 'draining' : 'open'),
      checks: () => checks(running, draining, failure),
      recent,
      notices: () => [...certificates.notices(), ...missing(running, failure)],
      metrics: () => metrics.render(),
      flags: inForce,
      log,
      sessions: () => [],
      sessionCount: () => running.uplinks.length,
      tunnels: () => tunnels,
      kick: { tunnel: (dialId, reason) => tunnels.abort(dialId, reason) },
      operated: (operation) => events.emit('operation', operation),
      servers: { connected: () => running.uplinks.map(connectedServer), wanted: () => running.wanted },
      drain: () => void drain().catch((error) => events.emit('fault', 'drain', '', error)),
      plan: () => ({ sessions: running.uplinks.length, moves: [], idleMs: flags['drain-idle-timeout'] }),
    };
    answers = answersOf(backend, 'reads');
    // The next agent of a node comes beside this one, also in a pod with the node's network.
    const reusePort = running.apiServer !== undefined;
    await operations({
      health: { host: flags['health-server-host'], port: flags['health-server-port'], reusePort },
      admin: {
        host: flags['admin-bind-address'],
        port: flags['admin-server-port'],
        path: flags['admin-uds-name'] || undefined,
        tls: adminFiles && ((...rest) => tlsServer({ where: 'admin', files: adminFiles, events }, ...rest)),
      },
      profiling: flags['enable-profiling'],
      unready: AGENT_UNREADY,
      metrics: metrics.render,
      backend,
      log,
      refused: (...refusal) => events.emit('refused', ...refusal),
      closing,
    });
    log.info({ agent: running.agentId, version: VERSION }, 'ready to connect');
    let told: Promise<void> | undefined;
    const cut = () => {
      if (tunnels.size > 0) told ??= ends?.(tunnels.size);
      tunnels.abortEach(({ role }) => role === 'agent', new PlaneEnded('the agent stops', { by: 'agent' }));
    };
    closing.defer(async () => {
      cut();
      await told;
    });
    return { drain, close: () => closing.close(), cut };
  });
}

function identity(flags: AgentValues): Identity {
  const { 'agent-id': agentId, zone } = flags;
  return { program: 'proxy-agent', roles: ['agent'], agentId, zone, memberId: '', hubId: '', plane: '' };
}

function connectedServer({ server, serverId, protocol, plane, leaving, open }: Uplink): ConnectedServer {
  const address = formatDestination({ host: server.address, port: server.port });
  return { serverId, address, protocol, plane, leaving, open };
}

async function countLeases(
  flags: AgentValues,
  closing: Closing,
  observer: LeaseCountObserver,
  warn: (message: string) => void,
): Promise<LeaseCounter | undefined> {
  if (!flags['count-server-leases']) return undefined;
  const client = await kubeApi(flags, closing);
  const counter = new LeaseCounter({
    client,
    observer,
    warn,
    namespace: flags['lease-namespace'],
    selector: flags['lease-label-selector'],
  });
  closing.defer(() => counter[Symbol.asyncDispose]());
  return counter;
}

/**
 * Keeps the pod's deletion cost, unless this process is no pod with a token for its API server. What it may not do there it notes, once.
 * @returns what tells that the agent ends with so many tunnels
 */
async function inPod(
  flags: AgentValues,
  closing: Closing,
  tunnels: () => number,
  note: (message: string) => void,
): Promise<((tunnels: number) => Promise<void>) | undefined> {
  const connection = await flaggedConnection(flags.kubeconfig)().catch(() => undefined);
  const pod = podOf(connection?.token ?? '');
  if (!pod) return undefined;
  const client = await kubeApi(flags, closing);
  const cost = deletionCost({ client, pod, tunnels, note });
  closing.defer(() => cost[Symbol.asyncDispose]());
  return (cut) => cutEvent(client, pod, flags['agent-id'], cut);
}

async function kubeApi(flags: AgentValues, closing: Closing): Promise<KubeClient> {
  const client = await kubeClient({ source: flaggedConnection(flags.kubeconfig) });
  closing.defer(() => client[Symbol.dispose]());
  return client;
}

/** The last failed attempt to connect to a server. */
interface Failure {
  readonly text: string;
  readonly at: number;
}

/** What keeps it from all the servers that it wants, for `isthmus status` of the agent. */
function missing({ connected, wanted }: Agent, failure: Failure | undefined): Notice[] {
  if (connected >= wanted || !failure || performance.now() - failure.at > AGENT.failureNoticeMs) return [];
  return [{ kind: 'servers', text: `connected to ${connected} of ${wanted} servers: ${failure.text}` }];
}

/** Ready as upstream's agent is: callers reach it through one server. The verbose page says how many are missing. */
function checks({ connected, wanted, apiServer }: Agent, draining: boolean, failure: Failure | undefined): Check[] {
  // Minutes later, its cause may be gone.
  const ago = failure && `${Math.round((performance.now() - failure.at) / 1000)} s ago`;
  const last = failure ? `; last failure ${ago}: ${failure.text}` : '';
  const servers = connected === 0 ? `not connected to any server${last}` : `connected to ${connected} of ${wanted}`;
  return [
    admissionCheck(draining ? 'draining' : 'open'),
    { name: 'servers', ok: connected > 0, detail: servers },
    ...(apiServer ? [apiServer] : []),
  ];
}

await runProgram({
  ...proxyAgent,
  log: ({ v, 'log-format': format }) => createLogger({ name: proxyAgent.name, format, verbosity: v }),
  start: startAgent,
});
