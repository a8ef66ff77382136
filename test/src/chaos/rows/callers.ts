import { goMissing, until } from '../../harness/index.ts';
import { clock } from '../clock.ts';
import { startSource, startSwarm } from '../load/helpers.ts';
import type { Context, Row } from '../row.ts';
import { type ServerPlane, serverPlane } from '../server-plane.ts';

const TUNNELS = 500;
/** Bytes per second of each tunnel: 25 MB/s together, which leaves processor time to spare. */
const RATE = 50_000;
const NEXT_DIAL_WITHIN = 100;
const DESTINATIONS_END_WITHIN = 1000;

type Agent = 'our agent' | 'a Go agent';
type Protocol = 'grpc' | 'connect';

const WORDS = { grpc: 'gRPC', connect: 'HTTP CONNECT' } as const;

async function killCaller(
  { scope, plane, load, hold, measure }: Context<ServerPlane>,
  protocol: Protocol,
): Promise<void> {
  const [door] = plane.doors;
  if (!door) throw new Error('there is no server');
  const source = await startSource(scope, { rate: RATE, deaf: false });
  const destination = `127.0.0.1:${source.report?.port}`;
  const swarm = await startSwarm(scope, { door, protocols: [protocol], destination, tunnels: TUNNELS, does: 'read' });
  await hold(5000, 2000);
  const at = clock();
  await swarm.kill();
  await until(() => source.report?.open === 0, {
    what: () => `the end of ${source.report?.open} destination sockets`,
  });
  const ended = (source.report?.changedAt ?? 0) - at;
  await hold(5000, 1000);
  const next = await until(() => load.dials.find((dial) => dial.at >= at), { what: 'the answer to a dial' });
  measure({ name: 'next dial', value: next.ms, unit: 'ms', most: NEXT_DIAL_WITHIN });
  measure({
    name: `its ${TUNNELS} destination sockets end within`,
    value: ended,
    unit: 'ms',
    most: DESTINATIONS_END_WITHIN,
  });
}

function rowOf(protocol: Protocol, agent: Agent): Row<ServerPlane> {
  const go = agent === 'a Go agent';
  return {
    name: `caller-kill-${protocol}${go ? '-go' : ''}`,
    fault: `caller (API server) SIGKILL with ${TUNNELS} busy tunnels (${(TUNNELS * RATE) / 1e6} MB/s) over ${WORDS[protocol]}, all through ${agent}`,
    holds:
      "other callers' dials unaffected, next dial within 100 ms, the dead caller's destination sockets end within 1 s",
    bounds: { dialMs: 1000 },
    ...(go && { skip: () => goMissing() || undefined }),
    topology: (scope) => serverPlane(scope, { servers: 1, agents: go ? 0 : 1, goAgents: go ? 1 : 0 }),
    inject: (context) => killCaller(context, protocol),
  };
}

export const callerRows: readonly Row<ServerPlane>[] = [
  rowOf('grpc', 'our agent'),
  rowOf('connect', 'our agent'),
  rowOf('grpc', 'a Go agent'),
  rowOf('connect', 'a Go agent'),
];
