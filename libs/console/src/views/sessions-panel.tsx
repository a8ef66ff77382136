import { useState } from 'preact/hooks';
import { age, plural, shown } from '../model/text.ts';
import type { Action } from '../parts/confirm.tsx';
import { Name } from '../parts/name.tsx';
import { Table } from '../parts/table.tsx';
import { act } from '../rpc/client.ts';
import type { Session } from '../rpc/messages.ts';
import type { ViewProps } from './view.ts';

const ROWS = 50;

const COLUMNS = [
  { name: 'Agent' },
  { name: 'Tenant' },
  { name: 'From' },
  { name: 'Age', right: true },
  { name: 'Tunnels', right: true },
  { name: 'End it' },
];

/** `isthmus kick agent`: only the hub that holds a session can end it. */
export function SessionsPanel({ plane, ask, hub }: ViewProps & { readonly hub: string }) {
  const [wanted, want] = useState('');
  const text = wanted.trim().toLowerCase();
  const held = plane.sessions.filter(({ hubId, agentId, tenant }) => {
    return hubId === hub && (agentId.toLowerCase().includes(text) || tenant.toLowerCase().includes(text));
  });
  const rows = held.slice(0, ROWS).map((session) => ({
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
      <Table title="Sessions at this hub" columns={COLUMNS} rows={rows} none="No session." />
      {held.length > ROWS && <p>And {plural(held.length - ROWS, 'session')} more: narrow the search.</p>}
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
