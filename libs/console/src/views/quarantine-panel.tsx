import { useState } from 'preact/hooks';
import { plural, shown } from '../model/text.ts';
import type { Action } from '../parts/confirm.tsx';
import { Name } from '../parts/name.tsx';
import { Table } from '../parts/table.tsx';
import { act } from '../rpc/client.ts';
import type { ViewProps } from './view.ts';

interface AgentName {
  readonly tenant: string;
  readonly agentId: string;
}

const COLUMNS = [{ name: 'Agent' }, { name: 'Tenant' }, { name: 'Reason' }, { name: 'Lift' }];

/** `isthmus quarantine`. */
export function QuarantinePanel({ plane, settings, ask }: ViewProps) {
  const [agentId, setAgent] = useState('');
  const [tenant, setTenant] = useState(settings.tenant);
  const submit = (event: Event) => {
    event.preventDefault();
    ask(quarantining({ tenant: tenant.trim(), agentId: agentId.trim() }));
  };
  const rows = plane.quarantined.map((each) => ({
    key: `${each.tenant}\0${each.agentId}`,
    bad: true,
    cells: [
      <Name key="agent" text={each.agentId} />,
      <Name key="tenant" text={each.tenant} />,
      <Name key="reason" text={each.reason} most={200} />,
      <button
        key="lift"
        type="button"
        aria-label={`Lift the quarantine of ${shown(each.agentId)}`}
        onClick={() => ask(lifting(each))}
      >
        Lift …
      </button>,
    ],
  }));
  return (
    <section aria-labelledby="quarantine">
      <h2 id="quarantine">Quarantine: keep new dials away from an agent</h2>
      <form class="filter" onSubmit={submit}>
        <label>
          Agent <input required value={agentId} onInput={({ currentTarget }) => setAgent(currentTarget.value)} />
        </label>
        <label>
          Tenant{' '}
          <input
            value={tenant}
            placeholder="the gateway's own"
            onInput={({ currentTarget }) => setTenant(currentTarget.value)}
          />
        </label>
        <button type="submit">Quarantine …</button>
      </form>
      <Table title="Agents in quarantine" columns={COLUMNS} rows={rows} none="No agent is in quarantine." />
    </section>
  );
}

function quarantining(agent: AgentName): Action {
  return {
    title: `Put agent ${shown(agent.agentId)} into quarantine?`,
    about: (
      <p>It takes no new dials, in the whole plane. Its open tunnels stay open; to end them, kick it at its hubs.</p>
    ),
    word: 'Quarantine',
    reason: 'needed',
    async run(reason) {
      const { known, sessions, tunnels, tenant } = await act('Quarantine', { agent, reason });
      const name = `${shown(agent.agentId)} of tenant ${shown(tenant)}`;
      if (!known)
        return `No agent ${name} is known here: check the name and the tenant. It is in quarantine anyway if it connects`;
      return `${name} takes no new dials; ${plural(sessions, 'session')} known here, ${plural(tunnels, 'tunnel')} stay open`;
    },
  };
}

function lifting(agent: AgentName): Action {
  return {
    title: `Lift the quarantine of ${shown(agent.agentId)}?`,
    about: <p>It takes dials again, in the whole plane.</p>,
    word: 'Lift',
    reason: 'none',
    async run() {
      const { tenant, sessions } = await act('Quarantine', {
        agent: { tenant: agent.tenant, agentId: agent.agentId },
        lift: true,
      });
      return `${shown(agent.agentId)} of tenant ${shown(tenant)} takes dials again; ${plural(sessions, 'session')} known here`;
    },
  };
}
