import { Findings } from '../parts/findings.tsx';
import { AgentMap } from './agent-map.tsx';
import { LinkMap } from './link-map.tsx';
import { MemberTable } from './member-table.tsx';
import { Refusals } from './refusals.tsx';
import type { ViewProps } from './view.ts';

/** Everything at once, what is wrong first: for a wall. */
export function PlaneView({ plane, agents, findings }: ViewProps) {
  const refusals = plane.members.flatMap(({ id, status }) =>
    (status?.refusals ?? []).map((refusal) => ({ member: id, refusal })),
  );
  return (
    <>
      <Findings findings={findings} known={plane.at > 0} />
      <section aria-labelledby="members">
        <h2 id="members">Gateways and hubs</h2>
        <LinkMap plane={plane} />
        <MemberTable plane={plane} />
      </section>
      {refusals.length > 0 && (
        <section aria-labelledby="refused">
          <h2 id="refused">Connections refused in the last five minutes</h2>
          <Refusals refusals={refusals} now={plane.at} />
        </section>
      )}
      <AgentMap agents={agents} known={plane.at > 0} />
    </>
  );
}
