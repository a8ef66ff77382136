import { useEffect, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { consoleOf, type Seen, selfOf } from '../model/plane.ts';
import { age, clock, plural, shown } from '../model/text.ts';
import type { Action } from '../parts/confirm.tsx';
import { Table } from '../parts/table.tsx';
import { Name } from '../parts/text.tsx';
import { act, type Drained, type LogLevels, reasonOf, type Session } from '../rpc.ts';
import type { ViewProps } from './view.ts';

/** What an operator does to this member, and to the plane through it. Each action is audited. */
export function ActionsView(props: ViewProps) {
  const { plane, settings } = props;
  const self = selfOf(plane);
  const others = plane.members.flatMap((member) => {
    const href = consoleOf(member, 'actions');
    return href === undefined ? [] : [{ id: member.id, href }];
  });
  // What concerns the whole process is refused to operators of one tenant.
  const whole = settings.tenant === '';
  return (
    <>
      <p>
        Actions here are those of member <b>{shown(self?.id ?? '')}</b>; quarantine applies to the whole plane.{' '}
        {others.length > 0 && 'Other members: '}
        {others.map(({ id, href }) => (
          <a key={id} class="other" href={href}>
            {shown(id)}
          </a>
        ))}
      </p>
      <QuarantinePanel {...props} />
      {whole && self && <DrainPanel ask={props.ask} member={self} />}
      {whole && self && <LogLevelPanel ask={props.ask} member={self} />}
      {self?.roles.includes('hub') && <SessionsPanel {...props} hub={self.id} />}
    </>
  );
}

const MOVES = [
  { name: 'Agent' },
  { name: 'Tenant' },
  { name: 'Sessions elsewhere', right: true },
  { name: 'Tunnels', right: true },
];
const RUNNING = [{ name: 'Destination' }, { name: 'Caller' }, { name: 'Agent' }, { name: 'Age', right: true }];

/** `isthmus drain`, its dry run first. */
function DrainPanel({ member, ask }: Pick<ViewProps, 'ask'> & { readonly member: Seen }) {
  const [state, setState] = useState<{ answer?: Drained; fault?: unknown }>({});
  const dryRun = () => {
    act('Drain', { dryRun: true }).then(
      (answer) => setState({ answer }),
      (fault: unknown) => setState({ fault }),
    );
  };
  return (
    <section aria-labelledby="drain">
      <h2 id="drain">Drain {shown(member.id)}</h2>
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
      {state.fault !== undefined && (
        <p class="fault" role="alert">
          {shown(reasonOf(state.fault), 300)}
        </p>
      )}
      {state.answer && <Plan answer={state.answer} />}
    </section>
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
        rows={moves.slice(0, CONSOLE.rows).map((move) => ({
          key: move.sessionId,
          bad: move.elsewhere === 0,
          cells: [
            <Name key="agent" text={move.agentId} />,
            <Name key="tenant" text={move.tenant} />,
            move.elsewhere,
            move.tunnels,
          ],
        }))}
      />
      <Table
        title="Tunnels that run now, oldest first"
        columns={RUNNING}
        none="No tunnel runs now."
        rows={running.slice(0, CONSOLE.rows).map((tunnel) => ({
          key: `${tunnel.role} ${tunnel.dialId}`,
          cells: [
            <Name key="destination" text={tunnel.destination} />,
            <Name key="caller" text={tunnel.caller} />,
            <Name key="agent" text={tunnel.agentId} />,
            age(tunnel.ageMs),
          ],
        }))}
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
      const { sessions, tunnels } = await act('Drain', { dryRun: false });
      return `${shown(id)} drains: ${plural(sessions, 'session')} move, ${plural(tunnels, 'tunnel')} finish`;
    },
  };
}

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];
const TIMES = [
  { ms: 600_000, word: '10 minutes' },
  { ms: 3_600_000, word: 'an hour' },
  { ms: 86_400_000, word: 'a day' },
  { ms: 0, word: 'until it is changed' },
];

/** `isthmus log-level`. */
function LogLevelPanel({ member, ask }: Pick<ViewProps, 'ask'> & { readonly member: Seen }) {
  const [state, setState] = useState<{ now?: LogLevels; fault?: unknown }>({});
  const [level, setLevel] = useState('debug');
  const [durationMs, setDuration] = useState(600_000);
  useEffect(() => {
    // Reading it is an operation too, so it is asked for once.
    act('SetLogLevel', { level: '' }).then(
      (now) => setState({ now }),
      (fault: unknown) => setState({ fault }),
    );
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    ask(setting(member, level, durationMs, (now) => setState({ now })));
  };
  const { now, fault } = state;
  return (
    <section aria-labelledby="log-level">
      <h2 id="log-level">Log level of {shown(member.id)}</h2>
      <p role="status">
        {now && `It logs at ${now.level}`}
        {now?.untilMs !== undefined && `, until ${clock(now.untilMs)}, then at ${now.revertsTo}`}
        {fault !== undefined && shown(reasonOf(fault), 300)}
      </p>
      <form class="filter" onSubmit={submit}>
        <label>
          Level{' '}
          <select value={level} onChange={({ currentTarget }) => setLevel(currentTarget.value)}>
            {LEVELS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          For{' '}
          <select value={`${durationMs}`} onChange={({ currentTarget }) => setDuration(Number(currentTarget.value))}>
            {TIMES.map(({ ms, word }) => (
              <option key={ms} value={`${ms}`}>
                {word}
              </option>
            ))}
          </select>
        </label>
        <button type="submit">Set …</button>
      </form>
    </section>
  );
}

function setting({ id }: Seen, level: string, durationMs: number, done: (now: LogLevels) => void): Action {
  return {
    title: `Let ${shown(id)} log at ${level}?`,
    about: <p>trace and debug write a line for each dial and more: they cost processor time and disk.</p>,
    word: 'Set',
    reason: 'none',
    async run() {
      const now = await act('SetLogLevel', { level, durationMs });
      done(now);
      return `${shown(id)} logs at ${now.level}, before at ${now.previous}`;
    },
  };
}

interface AgentName {
  readonly tenant: string;
  readonly agentId: string;
}

const QUARANTINE_COLUMNS = [{ name: 'Agent' }, { name: 'Tenant' }, { name: 'Reason' }, { name: 'Lift' }];

/** `isthmus quarantine`. */
function QuarantinePanel({ plane, agents, settings, ask }: ViewProps) {
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
          Agent{' '}
          <input
            required
            list="agents-known"
            value={agentId}
            onInput={({ currentTarget }) => setAgent(currentTarget.value)}
          />
        </label>
        <Known id="agents-known" names={agents.filter((agent) => tenant === '' || agent.tenant === tenant.trim())} />
        <label>
          Tenant{' '}
          <input
            value={tenant}
            list="tenants-known"
            placeholder="the gateway's own"
            onInput={({ currentTarget }) => setTenant(currentTarget.value)}
          />
        </label>
        <Known id="tenants-known" names={agents.map((agent) => ({ id: agent.tenant }))} />
        <button type="submit">Quarantine …</button>
      </form>
      <Table title="Agents in quarantine" columns={QUARANTINE_COLUMNS} rows={rows} none="No agent is in quarantine." />
    </section>
  );
}

/** Names to choose from; another may be typed, as of an agent that is not there now. */
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

const SESSION_COLUMNS = [
  { name: 'Agent' },
  { name: 'Tenant' },
  { name: 'From' },
  { name: 'Age', right: true },
  { name: 'Tunnels', right: true },
  { name: 'End it' },
];

/** `isthmus kick agent`: only the hub that holds a session can end it. */
function SessionsPanel({ plane, ask, hub }: ViewProps & { readonly hub: string }) {
  const [wanted, want] = useState('');
  const text = wanted.trim().toLowerCase();
  const held = plane.sessions.filter(({ hubId, agentId, tenant }) => {
    return hubId === hub && (agentId.toLowerCase().includes(text) || tenant.toLowerCase().includes(text));
  });
  const rows = held.slice(0, CONSOLE.rows).map((session) => ({
    key: session.sessionId,
    cells: [
      <Name key="agent" text={session.agentId} />,
      <Name key="tenant" text={session.tenant} />,
      <Name key="remote" text={session.remote || '–'} />,
      age(plane.at - session.sinceMs),
      session.tunnels.toLocaleString('en'),
      <button
        key="kick"
        type="button"
        aria-label={`Kick agent ${shown(session.agentId)}`}
        onClick={() => ask(kicking(session))}
      >
        Kick …
      </button>,
    ],
  }));
  return (
    <section aria-labelledby="sessions">
      <h2 id="sessions">{plural(held.length, 'session')} at this hub: kick an agent</h2>
      <label class="find">
        Find <input type="search" value={wanted} onInput={({ currentTarget }) => want(currentTarget.value)} />
      </label>
      <Table title="Sessions at this hub" columns={SESSION_COLUMNS} rows={rows} none="No session." />
      {held.length > CONSOLE.rows && (
        <p>And {plural(held.length - CONSOLE.rows, 'session')} more: narrow the search.</p>
      )}
    </section>
  );
}

function kicking({ tenant, agentId }: Session): Action {
  return {
    title: `Kick agent ${shown(agentId)}?`,
    about: (
      <p>
        Ends its sessions with this hub and all tunnels in them, at once. It reconnects by itself; quarantine keeps new
        dials away.
      </p>
    ),
    word: 'Kick',
    reason: 'wanted',
    async run(reason) {
      const { sessionIds, tunnels } = await act('Kick', { agent: { tenant, agentId }, reason });
      return `Ended ${plural(sessionIds.length, 'session')} and ${plural(tunnels, 'tunnel')}`;
    },
  };
}
