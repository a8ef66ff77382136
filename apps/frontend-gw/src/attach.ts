import { deleteFrom, getOrPut } from '@isthmus/runtime';
import {
  type AgentName,
  type AgentRoutes,
  type Attach,
  AttachRefused,
  type AttachRequest,
  asDialError,
  attachThrough,
  type Deadlines,
  DialError,
  type Observation,
  deadlines as ofThisProcess,
  SessionLost,
  type Tunnel,
} from '@isthmus/tunnel';
import { GATEWAY } from './defaults.ts';

interface PassedAttachOptions extends AgentRoutes {
  readonly observation: Observation;
  /** Default: those of the process. */
  readonly deadlines?: Deadlines;
}

/**
 * Passes on an attach of `isthmus hold`, which names the agent's process and leaves the session to this gateway. Tries one session after the
 * other until the agent answers, as each says nothing about the tunnel.
 */
export function passedAttach(options: PassedAttachOptions): Attach {
  const { observation, deadlines = ofThisProcess } = options;
  // A session that is silent is given up sooner than hold gives up this gateway.
  const through = { ...options, ...observation, deadlines, silentMs: GATEWAY.passedAttachMs, ownDeadline: false };
  return async (request) => {
    const { tenant, destination, process } = request;
    if (!process)
      throw new DialError('http_request_error', "not an attach of isthmus hold: it names no agent's process");
    const to = { tenant, host: destination.host, agent: process.agentId, instance: process.instance };
    const tried = new Set<string>();
    for (let last: DialError | undefined; ; ) {
      const [best] = options.route({ ...to, tried });
      const record = best?.rank === undefined ? undefined : best.session.record;
      const link = record && options.nextHop(record.hubId);
      if (!record || !link) throw last ?? noWay(options, request);
      tried.add(record.sessionId);
      try {
        return await attachThrough(link, record, { ...request, session: record.sessionId }, through);
      } catch (thrown) {
        last = asDialError(thrown);
        if (last.cause instanceof AttachRefused || request.signal.aborted) throw last;
        if (performance.now() >= request.deadline) throw last;
      }
    }
  };
}

/**
 * Moves tunnels of `isthmus hold` away from sessions that drain, once an attach would take another session of the agent's process, which stays:
 * a draining hub waits for them, and hold knows only gateways. It attaches again at once.
 * @returns what to call with each tunnel of hold that begins
 */
export function leaveDraining(routes: Pick<AgentRoutes, 'directory' | 'route'>): (tunnel: Tunnel) => void {
  const { directory, route } = routes;
  const carried = new Map<string, Set<Tunnel>>();
  const check = ({ tenant, agentId }: AgentName) => {
    if (carried.size === 0) return;
    for (const { record, state } of directory.ofAgent({ tenant, agentId, instance: '' })) {
      const tunnels = state.draining && carried.get(record.sessionId);
      const { instance, hubId } = record;
      if (!tunnels || instance === undefined) continue;
      const [best] = route({ tenant, host: '', agent: agentId, instance, tried: new Set() });
      if (best?.rank === undefined || best.session.state.draining) continue;
      carried.delete(record.sessionId);
      for (const tunnel of tunnels) tunnel.abort(new SessionLost(`hub ${hubId} drains`));
    }
  };
  directory.watch({ came: check, went() {}, changed: check });
  return (tunnel) => {
    if (!tunnel.passesOn) return;
    getOrPut(carried, tunnel.sessionId, () => new Set<Tunnel>()).add(tunnel);
    void tunnel.done.then(() => deleteFrom(carried, tunnel.sessionId, tunnel));
    // The session may have begun to drain while the dial or attach was under way.
    check({ tenant: tunnel.dial.tenant, agentId: tunnel.agentId });
  };
}

/** Whether the agent may come back: it has gone for good if another process of it is there, and this one is not. */
function noWay({ directory }: PassedAttachOptions, { tenant, process }: AttachRequest): DialError {
  const { agentId = '', instance = '' } = process ?? {};
  const instances = new Set<string>();
  for (const { record } of directory.ofAgent({ tenant, agentId, instance })) instances.add(record.instance ?? '');
  const restarted = instances.size > 0 && !instances.has(instance);
  const text = restarted ? `agent ${agentId} has restarted` : `there is no way to agent ${agentId}`;
  const cause = restarted ? new AttachRefused(text, { final: true, ordinary: true }) : new SessionLost(text);
  return new DialError('connection_terminated', text, { retryable: !restarted, cause });
}
