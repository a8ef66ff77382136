import { goMissing, until } from '../../harness/index.ts';
import { listening } from '../../rig/child.ts';
import { clock } from '../../rig/clock.ts';
import { flooding } from '../../rig/flooding.ts';
import type { DestinationState } from '../../rig/load/destination.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';

const TUNNELS = 500;
/** Bytes per second of each tunnel: 25 MB/s together, which leaves processor time to spare. */
const RATE = 50_000;
const NEXT_DIAL_WITHIN = 100;
const DESTINATIONS_END_WITHIN = 1000;

type Agent = 'our agent' | 'a Go agent';
type Protocol = 'grpc' | 'connect';

const WORDS = { grpc: 'gRPC', connect: 'HTTP CONNECT' } as const;

async function killCaller({ scope, plane, load, hold, measure }: Context<Plane>, protocol: Protocol): Promise<void> {
  const { port, child } = await listening(scope, 'rig/load/destination.ts');
  const fronts = plane.doors.map((door) => ({ kind: 'door', door, protocol }) as const);
  const swarm = await flooding(scope, {
    held: { downloads: TUNNELS },
    fronts,
    destinationPort: port,
    rate: RATE / 1000,
  });
  if (swarm.begun.tunnels < TUNNELS) throw new Error(`only ${swarm.begun.tunnels} of ${TUNNELS} tunnels were opened`);
  await hold(5000, 2000);
  const at = clock();
  await swarm.end();
  let state: DestinationState | undefined;
  const allEnded = async () => {
    state = await child.ask<DestinationState>('state');
    return state.open === 0 && state;
  };
  const { changedAt } = await until(allEnded, { what: () => `the end of ${state?.open} destination sockets` });
  const ended = changedAt - at;
  await hold(5000, 1000);
  const next = await until(() => load.dials.find((dial) => dial.at >= at), { what: 'the answer to a dial' });
  measure('next dial', next.ms, 'ms', NEXT_DIAL_WITHIN);
  measure(`its ${TUNNELS} destination sockets end within`, ended, 'ms', DESTINATIONS_END_WITHIN);
}

function rowOf(protocol: Protocol, agent: Agent): Row<Plane> {
  const go = agent === 'a Go agent';
  return {
    name: `caller-kill-${protocol}${go ? '-go' : ''}`,
    fault: `caller SIGKILL, ${TUNNELS} busy tunnels (${(TUNNELS * RATE) / 1e6} MB/s), ${WORDS[protocol]}, ${agent}`,
    holds:
      "other callers' dials unaffected, next dial within 100 ms, the dead caller's destination sockets end within 1 s",
    bounds: { dialMs: 1000 },
    ...(go && { skip: goMissing }),
    topology: (scope) => startPlane(scope, { servers: 1, agents: go ? 0 : 1, goAgents: go ? 1 : 0 }),
    inject: (context) => killCaller(context, protocol),
  };
}

export const callerRows: readonly Row<Plane>[] = [
  rowOf('grpc', 'our agent'),
  rowOf('connect', 'our agent'),
  rowOf('grpc', 'a Go agent'),
  rowOf('connect', 'a Go agent'),
];
