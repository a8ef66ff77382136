import { useMemo, useState } from 'preact/hooks';
import { type Agent, groupsOf, STATES } from '../model/agents.ts';
import { plural, shown } from '../model/text.ts';
import { AgentTable } from './agent-table.tsx';
import { Cells } from './cells.tsx';

/** Groups with a picture of their own. */
const DRAWN = 60;

/** Agents that a search lists. */
const LISTED = 50;

/** All agents by tenant and zone, one cell each: those that are not well come first, in their colours. */
export function AgentMap({
  agents,
  known,
}: {
  readonly agents: readonly Agent[];
  /** Whether the plane has answered yet. */
  readonly known: boolean;
}) {
  const [wanted, want] = useState('');
  const groups = useMemo(() => groupsOf(agents), [agents]);
  const found = useMemo(() => search(agents, wanted), [agents, wanted]);
  const rest = groups.slice(DRAWN);
  return (
    <section aria-labelledby="agents">
      <h2 id="agents">
        {plural(agents.length, 'agent')} in {plural(groups.length, 'group')}, by tenant and zone
      </h2>
      <p class="legend">
        {STATES.map((state) => (
          <span key={state} class={`key ${state}`}>
            {LEGEND[state]}
          </span>
        ))}
      </p>
      <label class="find">
        Find an agent
        <input type="search" value={wanted} onInput={({ currentTarget }) => want(currentTarget.value)} />
      </label>
      <AgentTable
        agents={found.slice(0, LISTED)}
        all={found.length}
        none={wanted !== '' ? 'No agent has that name.' : known ? 'Every agent that is here is well.' : ''}
        title={wanted !== '' ? 'Agents found' : 'Agents that are not well'}
      />
      <div class="groups">
        {groups.slice(0, DRAWN).map((group) => (
          <Cells key={`${group.tenant} ${group.zones}`} group={group} />
        ))}
      </div>
      {rest.length > 0 && (
        <p>
          And {plural(rest.length, 'group')} more with {plural(sum(rest.map((group) => group.agents.length)), 'agent')},
          of which {sum(rest.map(({ agents: { length }, counts }) => length - counts.well)).toLocaleString('en')} are
          not well:
          {` ${rest
            .slice(0, 20)
            .map(({ tenant }) => shown(tenant, 30))
            .join(', ')}`}
        </p>
      )}
    </section>
  );
}

const LEGEND = {
  well: 'well',
  thin: 'one hub only',
  draining: 'draining',
  quarantined: 'in quarantine',
} as const;

/** Agents whose name or tenant has a text in it; without one, those that are not well. */
function search(agents: readonly Agent[], wanted: string): Agent[] {
  const text = wanted.trim().toLowerCase();
  if (text === '') return agents.filter(({ state }) => state !== 'well');
  return agents.filter(({ id, tenant }) => id.toLowerCase().includes(text) || tenant.toLowerCase().includes(text));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
