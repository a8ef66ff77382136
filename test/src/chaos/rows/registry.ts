import { isUp, type Member, peerFlags, until } from '../../harness/index.ts';
import { clock } from '../clock.ts';
import { type Outage, type OutageKind, outages } from '../registries.ts';
import type { Context, Row } from '../row.ts';
import { gatewayOf, type SplitPlane, splitPlane } from '../split-plane.ts';

const CONVERGED_WITHIN = 3000;

interface OutagePlane extends SplitPlane {
  readonly outage: Outage;
}

function rowOf({ name, fault, start }: OutageKind): Row<OutagePlane> {
  return {
    name,
    fault,
    holds: '0 failed dials to live sessions; changes during the outage are known within 3 s of its end',
    bounds: {},
    async topology(scope) {
      const outage = await start(scope);
      return { ...(await splitPlane(scope, { registryUrl: outage.url })), outage };
    },
    async inject(context) {
      const { plane, hold, measure } = context;
      await plane.outage.begin();
      await hold(5000, 1000);
      await changeAgent(context);
      const late = await lateGateway(context);
      await hold(15_000, 2000);
      const ready = (await late.program.get('/readyz')).status === 200;
      const over = clock();
      await plane.outage.end();
      await until(async () => !(await plane.missing()), { what: 'all members to know what changed' });
      measure({ name: 'changes known after', value: clock() - over, unit: 'ms', most: CONVERGED_WITHIN });
      await late.program.waitReady();
      const became = ready ? 'was ready throughout, checked' : 'was not ready, then ready';
      measure({ name: `a gateway started during the outage ${became} after`, value: clock() - over, unit: 'ms' });
      await late.kill();
    },
  };
}

/** Kills and restarts an agent: its old sessions are gone, and gateways cannot learn of the new ones. */
async function changeAgent({ plane, strike }: Context<OutagePlane>): Promise<void> {
  const agent = plane.agents.at(-1) as Member;
  await strike({ takes: ({ agentId }) => agentId === agent.id }, () => agent.kill());
  await agent.restart();
}

async function lateGateway({ plane, scope }: Context<OutagePlane>): Promise<Member> {
  const flags = { v: 1, 'redis-url': plane.outage.url, plane: 'chaos', ...(await peerFlags(plane.trust)) };
  const { gateway } = await gatewayOf(scope, plane.trust, plane.gateways.length, flags);
  await isUp(gateway.program);
  return gateway;
}

export const registryRows: readonly Row<OutagePlane>[] = outages.map(rowOf);
