import { age, plural } from '@isthmus/findings';
import { useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { hrefOf, type Seen } from '../model/plane.ts';
import { shown } from '../model/text.ts';
import type { Action } from '../parts/confirm.tsx';
import { useDone } from '../parts/follow.ts';
import { Field, MemberChoice } from '../parts/form.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Fault, Name } from '../parts/text.tsx';
import { act, type Drained, type Quarantined, type Tunnel } from '../rpc.ts';
import type { ViewProps } from './view.ts';

/** What an operator does to the plane. Each action is audited by the member that does it. */
export function ActionsView(props: ViewProps) {
  const { plane, settings, ask, path } = props;
  const member = plane.members.find(({ id, self }) => (path[0] ? id === path[0] : self));
  return (
    <>
      <QuarantinePanel {...props} />
      {/* What concerns a whole process is refused to operators of one tenant. */}
      {settings.tenant === '' && member && (
        <section aria-labelledby="drain">
          <h2 id="drain">Drain {shown(member.id)}</h2>
          <MemberChoice
            members={plane.members}
            chosen={member.id}
            choose={(id) => location.replace(hrefOf('actions', id))}
          />
          <DrainPanel key={member.id} ask={ask} member={member} />
        </section>
      )}
    </>
  );
}

type DrainPlan = NonNullable<Drained['plan']>;

const MOVES: readonly Column<DrainPlan['moves'][number]>[] = [
  { name: 'Agent', of: ({ agentId }) => <Name text={agentId} /> },
  { name: 'Tenant', of: ({ tenant }) => <Name text={tenant} /> },
  { name: 'Sessions elsewhere', right: true, of: ({ elsewhere }) => elsewhere },
  { name: 'Tunnels', right: true, of: ({ tunnels }) => tunnels },
];

const RUNNING: readonly Column<Tunnel>[] = [
  { name: 'Destination', of: ({ destination }) => <Name text={destination} /> },
  { name: 'Caller', of: ({ caller }) => <Name text={caller} /> },
  { name: 'Agent', of: ({ agentId }) => <Name text={agentId} /> },
  { name: 'Age', right: true, of: ({ ageMs }) => age(ageMs) },
];

/** `isthmus drain`, its dry run first. */
function DrainPanel({ member, ask }: Pick<ViewProps, 'ask'> & { readonly member: Seen }) {
  const [state, plan] = useDone<Drained>();
  const dryRun = () => plan(act(member.id, 'Drain', { dryRun: true }));
  return (
    <>
      <p>
        A hub that drains takes no new dials, its agents move to other hubs, and tunnels move or finish. It lasts until
        the process ends.
      </p>
      <p class="buttons">
        <button type="button" onClick={dryRun}>
          Dry run
        </button>
        {state.answer && (
          <button type="button" class="act" onClick={() => ask(draining(member, state.answer as Drained))}>
            Drain …
          </button>
        )}
      </p>
      <Fault error={state.fault} />
      {state.answer && <Plan answer={state.answer} />}
    </>
  );
}

function Plan({ answer: { sessions, tunnels, plan } }: { readonly answer: Drained }) {
  const { moves = [], stranded = 0, running = [], gracefulMs } = plan ?? {};
  const until =
    gracefulMs === undefined ? '' : `; stopping the process cuts those that still run after ${gracefulMs / 1000} s`;
  return (
    <div role="status">
      <p>
        {plural(sessions, 'session')} would move, {plural(tunnels, 'tunnel')} would move or finish{until}.
      </p>
      {stranded > 0 && (
        <p class="fault">
          {plural(stranded, 'session')} of agents that have no other hub: dials to them wait or fail until they do.
        </p>
      )}
      <Table
        title="Sessions that would move"
        columns={MOVES}
        none="No session would move."
        rows={moves}
        keyOf={({ sessionId }) => sessionId}
        bad={({ elsewhere }) => elsewhere === 0}
        most={CONSOLE.rows}
      />
      <Table
        title="Tunnels that run now, oldest first"
        columns={RUNNING}
        none="No tunnel runs now."
        rows={running}
        keyOf={({ role, dialId }) => `${role} ${dialId}`}
        most={CONSOLE.rows}
      />
    </div>
  );
}

function draining({ id }: Seen, { plan }: Drained): Action {
  const stranded = plan?.stranded ?? 0;
  return {
    title: `Drain ${shown(id)}?`,
    about: (
      <>
        <p>It takes no new dials until the process ends: there is no way back but a restart.</p>
        {stranded > 0 && <p class="fault">No other hub for {plural(stranded, 'session')}.</p>}
      </>
    ),
    word: 'Drain',
    reason: 'none',
    async run() {
      const { sessions, tunnels } = await act(id, 'Drain', { dryRun: false });
      return `${shown(id)} drains: ${plural(sessions, 'session')} move, ${plural(tunnels, 'tunnel')} finish`;
    },
  };
}

type AgentName = Pick<Quarantined, 'tenant' | 'agentId'>;

function quarantineColumns(ask: ViewProps['ask']): readonly Column<Quarantined>[] {
  const lift = (agent: Quarantined) => (
    <button
      type="button"
      aria-label={`Lift the quarantine of ${shown(agent.agentId)}`}
      onClick={() => ask(lifting(agent))}
    >
      Lift …
    </button>
  );
  return [
    { name: 'Agent', of: ({ agentId }) => <Name text={agentId} /> },
    { name: 'Tenant', of: ({ tenant }) => <Name text={tenant} /> },
    { name: 'Reason', of: ({ reason }) => <Name text={reason} most={200} /> },
    { name: 'Lift', of: lift },
  ];
}

/** `isthmus quarantine`. */
function QuarantinePanel({ plane, agents, settings, ask }: ViewProps) {
  const [agentId, setAgent] = useState('');
  const [tenant, setTenant] = useState(settings.tenant);
  const submit = (event: Event) => {
    event.preventDefault();
    ask(quarantining({ tenant: tenant.trim(), agentId: agentId.trim() }));
  };
  return (
    <section aria-labelledby="quarantine">
      <h2 id="quarantine">Quarantine: keep new dials away from an agent</h2>
      <form class="filter" onSubmit={submit}>
        <Field label="Agent" required list="agents-known" value={agentId} typed={setAgent} />
        <Known id="agents-known" names={agents.filter((agent) => tenant === '' || agent.tenant === tenant.trim())} />
        <Field label="Tenant" list="tenants-known" placeholder="the gateway's own" value={tenant} typed={setTenant} />
        <Known id="tenants-known" names={agents.map((agent) => ({ id: agent.tenant }))} />
        <button type="submit">Quarantine …</button>
      </form>
      <Table
        title="Agents in quarantine"
        columns={quarantineColumns(ask)}
        rows={plane.quarantined}
        keyOf={({ tenant: of, agentId: id }) => `${of}\0${id}`}
        bad={() => true}
        none="No agent is in quarantine."
      />
    </section>
  );
}

/** Names to choose from. Others may be typed: that of an agent that is not there now. */
function Known({ id, names }: { readonly id: string; readonly names: readonly { readonly id: string }[] }) {
  const known = new Set(names.map((name) => name.id));
  return (
    <datalist id={id}>
      {[...known].slice(0, CONSOLE.namesKnown).map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
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
      const { known, sessions, tunnels, tenant } = await act('', 'Quarantine', { agent, reason });
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
      const { tenant, sessions } = await act('', 'Quarantine', {
        agent: { tenant: agent.tenant, agentId: agent.agentId },
        lift: true,
      });
      return `${shown(agent.agentId)} of tenant ${shown(tenant)} takes dials again; ${plural(sessions, 'session')} known here`;
    },
  };
}
