import { useState } from 'preact/hooks';
import type { Seen } from '../model/plane.ts';
import { age, plural, shown } from '../model/text.ts';
import type { Action } from '../parts/confirm.tsx';
import { Name } from '../parts/name.tsx';
import { Table } from '../parts/table.tsx';
import { act, reasonOf } from '../rpc/client.ts';
import type { Drained } from '../rpc/messages.ts';
import type { ViewProps } from './view.ts';

const ROWS = 50;

const MOVES = [
  { name: 'Agent' },
  { name: 'Tenant' },
  { name: 'Sessions elsewhere', right: true },
  { name: 'Tunnels', right: true },
];
const RUNNING = [{ name: 'Destination' }, { name: 'Caller' }, { name: 'Agent' }, { name: 'Age', right: true }];

/** `isthmus drain`, its dry run first. */
export function DrainPanel({ member, ask }: Pick<ViewProps, 'ask'> & { readonly member: Seen }) {
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
        A drain takes no new dials, moves agents to other hubs and lets tunnels finish. It lasts until the process ends.
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
        {plural(sessions, 'session')} would move, {plural(tunnels, 'tunnel')} would finish{until}.
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
        rows={moves.slice(0, ROWS).map((move) => ({
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
        rows={running.slice(0, ROWS).map((tunnel) => ({
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
