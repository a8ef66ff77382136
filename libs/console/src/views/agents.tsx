import { plural, servedBy } from '@isthmus/findings';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import {
  type Agent,
  type Group,
  groupsOf,
  hrefOf,
  type Plane,
  STATES,
  type TenantRow,
  tenantsOf,
} from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { useAddressed } from '../parts/follow.ts';
import { Field } from '../parts/form.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Name, State, type Tone, toned } from '../parts/text.tsx';

/** All agents by tenant and zone, a mark each: those that are not ok come first. */
export function AgentMap({
  agents,
  plane,
  path,
}: {
  readonly agents: readonly Agent[];
  readonly plane: Plane;
  /** The name that is looked for. */
  readonly path: readonly string[];
}) {
  const [wanted, want] = useAddressed('plane', path[0] ?? '');
  const lost = agents.filter(({ state }) => state === 'lost').length;
  const groups = useMemo(() => groupsOf(agents), [agents]);
  const found = useMemo(() => search(agents, wanted), [agents, wanted]);
  const tenants = useMemo(() => tenantsOf(plane), [plane]);
  const rest = groups.slice(CONSOLE.agentGroups);
  return (
    <section aria-labelledby="agents">
      <h2 id="agents">
        {plural(agents.length - lost, 'agent')} in {plural(groups.length, 'group')}, by tenant and zone
        {lost > 0 && `; ${lost} lost in the last hour`}
      </h2>
      <p class="legend">
        {STATES.map((state) => (
          <span key={state} class="key" style={toned(LOOKS[state].tone)}>
            <svg viewBox="0 0 1 1" aria-hidden="true">
              <path d={LOOKS[state].mark} fill-rule="evenodd" />
            </svg>{' '}
            {LOOKS[state].word}
          </span>
        ))}
      </p>
      <Field class="find" label="Find an agent or tenant" type="search" value={wanted} typed={want} />
      <Table
        title={wanted !== '' ? 'Agents found' : 'Agents that are not ok'}
        columns={COLUMNS}
        rows={found}
        keyOf={({ tenant, id }) => `${tenant}\0${id}`}
        bad={({ state }) => LOOKS[state].tone === 'bad'}
        none={noneFor(agents, wanted, plane.at > 0)}
        most={CONSOLE.rows}
        more={(left) => `${left.toLocaleString('en')} more.`}
      />
      {tenants.length > 0 && (
        <Table
          title={wanted !== '' ? 'Tenants found' : 'Tenants with something wrong'}
          columns={TENANT_COLUMNS}
          rows={tenants.filter(({ tenant, from, wrong }) => (wanted === '' ? wrong !== '' : has(wanted, tenant, from)))}
          keyOf={({ tenant, from }) => `${tenant}\0${from}`}
          bad={({ wrong }) => wrong !== ''}
          none={wanted === '' ? `Of ${plural(tenants.length, 'tenant')}, none has something wrong.` : ''}
          most={CONSOLE.rows}
          more={(left) => `${left.toLocaleString('en')} more.`}
        />
      )}
      <div class="groups">
        {groups.slice(0, CONSOLE.agentGroups).map((group) => (
          <Cells key={`${group.tenant} ${group.zones}`} group={group} />
        ))}
      </div>
      {rest.length > 0 && (
        <p>
          And {plural(rest.length, 'group')} more with {plural(sum(rest.map((group) => group.agents.length)), 'agent')},
          of which {sum(rest.map(({ agents: { length }, counts }) => length - counts.ok)).toLocaleString('en')} are not
          ok:
          {` ${rest
            .slice(0, 20)
            .map(({ tenant }) => shown(tenant, 30))
            .join(', ')}`}
        </p>
      )}
    </section>
  );
}

function noneFor(agents: readonly Agent[], wanted: string, known: boolean): string {
  if (!known) return '';
  if (agents.length === 0)
    return 'No agent is connected. Start one with --proxy-server-host of a hub; if one runs, its log and the refusals under Why say what is wrong.';
  return wanted === ''
    ? 'Every agent that is here is ok.'
    : 'No agent or tenant has that in its name: clear the search to see all.';
}

interface Look {
  readonly tone: Tone;
  /** In the legend. */
  readonly word: string;
  /** In a square of 1 by 1: the forms differ without their colours, and in six pixels. */
  readonly mark: string;
}

const LOOKS: Readonly<Record<Agent['state'], Look>> = {
  ok: { tone: 'good', word: 'ok', mark: 'M.22 .5a.28 .28 0 1 1 .56 0a.28 .28 0 1 1-.56 0z' },
  thin: { tone: 'warn', word: 'one hub only', mark: 'M.5 0L1 1H0z' },
  draining: { tone: 'draining', word: 'draining', mark: 'M.5 0L1 .5L.5 1L0 .5z' },
  quarantined: { tone: 'bad', word: 'in quarantine', mark: 'M0 0H1V1H0z' },
  suspect: { tone: 'warn', word: 'suspect', mark: 'M0 0H.35V1H0zM.65 0H1V1H.65z' },
  lost: { tone: 'bad', word: 'lost in the last hour', mark: 'M0 0H1V1H0zM.22 .22V.78H.78V.22z' },
};

const COLUMNS: readonly Column<Agent>[] = [
  { name: 'Agent', of: AgentLink },
  { name: 'Tenant', of: ({ tenant }) => <Name text={tenant} /> },
  { name: 'State', of: (agent) => <State tone={LOOKS[agent.state].tone} word={wordFor(agent)} /> },
  { name: 'Hubs', of: ({ sessions, loss }) => <Name text={hubsOf([...sessions, ...(loss ? [loss] : [])])} /> },
  { name: 'Zone', of: ({ zones }) => (zones === '' ? '–' : <Name text={zones} />) },
  { name: 'Tunnels', right: true, of: ({ tunnels }) => tunnels.toLocaleString('en') },
  {
    name: 'Says it reaches',
    of: ({ sessions, loss }) => (
      <Name text={servedBy((sessions[0] ?? loss)?.identifiers).join(', ') || '–'} most={80} />
    ),
  },
];

const TENANT_COLUMNS: readonly Column<TenantRow>[] = [
  { name: 'Tenant', of: ({ tenant }) => (tenant === '' ? '–' : <Name text={tenant} />) },
  { name: 'From', of: ({ from }) => <Name text={from} /> },
  { name: 'Agents', right: true, of: ({ agents }) => agents.toLocaleString('en') },
  { name: 'What is wrong', of: ({ wrong }) => (wrong === '' ? '–' : <Name text={wrong} most={300} />) },
];

/** An agent's name, which leads to what the plane knows of it. */
export function AgentLink({ id }: { readonly id: string }) {
  return (
    <a href={hrefOf('plane', id)}>
      <Name text={id} />
    </a>
  );
}

function hubsOf(known: readonly { readonly hubId: string }[]): string {
  return [...new Set(known.map(({ hubId }) => hubId))].join(', ');
}

function wordFor({ state, sessions, loss }: Agent): string {
  if (state === 'lost') return `lost at ${clock(loss?.atMs ?? 0)}`;
  if (state === 'thin') return LOOKS.thin.word;
  return state === 'quarantined' ? `in quarantine: ${shown(sessions[0]?.quarantineReason ?? '', 80)}` : state;
}

/** Sides of a cell with its gap, in pixels, by how many there are. */
function sideFor(count: number): number {
  if (count <= 200) return 16;
  return count <= 2000 ? 10 : 7;
}

/** One group of agents as marks on a canvas: 10,000 elements would be slow in every browser. */
function Cells({ group }: { readonly group: Group }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [under, setUnder] = useState<Agent>();
  const { tenant, zones, agents, counts } = group;
  const side = sideFor(agents.length);
  const columns = Math.max(1, Math.floor(width / side));
  const height = Math.ceil(agents.length / columns) * side;
  useEffect(() => {
    const place = canvas.current?.parentElement;
    if (!place) return undefined;
    const fit = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    fit.observe(place);
    return () => fit.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, agents, { width, height, side, columns });
  }, [agents, width, height, side, columns]);
  const point = ({ offsetX, offsetY }: { readonly offsetX: number; readonly offsetY: number }) => {
    const column = Math.floor(offsetX / side);
    setUnder(column < columns ? agents[Math.floor(offsetY / side) * columns + column] : undefined);
  };
  const notOk = STATES.filter((state) => state !== 'ok' && counts[state] > 0).map(
    (state) => `${counts[state]} ${state}`,
  );
  const words = [plural(agents.length, 'agent'), ...notOk].join(', ');
  return (
    <figure class={`cells ${notOk.length > 0 ? 'warn' : ''}`}>
      <figcaption>
        <b>{shown(tenant, 40)}</b>
        {zones !== '' && `, zone ${shown(zones, 40)}`}: {words}
      </figcaption>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`Tenant ${shown(tenant, 40)}: ${words}`}
        onPointerMove={point}
        onPointerLeave={() => setUnder(undefined)}
      />
      <div class="under" aria-hidden="true">
        {under ? `${shown(under.id, 40)}: ${under.state}, ${plural(under.tunnels, 'tunnel')}` : ' '}
      </div>
    </figure>
  );
}

interface Place {
  readonly width: number;
  readonly height: number;
  readonly side: number;
  readonly columns: number;
}

function draw(canvas: HTMLCanvasElement, agents: readonly Agent[], { width, height, side, columns }: Place): void {
  const ratio = devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  if (!context) return;
  const style = getComputedStyle(canvas);
  const looks = new Map(
    STATES.map((state) => {
      const { tone, mark } = LOOKS[state];
      return [state, { colour: style.getPropertyValue(`--${tone}`).trim(), form: new Path2D(mark) }];
    }),
  );
  for (const [index, { state }] of agents.entries()) {
    const look = looks.get(state);
    if (!look) continue;
    context.fillStyle = look.colour;
    const [x, y] = [(index % columns) * side, Math.floor(index / columns) * side];
    const size = (side - 1) * ratio;
    context.setTransform(size, 0, 0, size, x * ratio, y * ratio);
    context.fill(look.form, 'evenodd');
  }
}

/** Agents whose name or tenant has a text in it; without one, those that are not ok. */
function search(agents: readonly Agent[], wanted: string): Agent[] {
  if (wanted.trim() === '') return agents.filter(({ state }) => state !== 'ok');
  return agents.filter(({ id, tenant }) => has(wanted, id, tenant));
}

function has(wanted: string, ...names: readonly string[]): boolean {
  const text = wanted.trim().toLowerCase();
  return names.some((name) => name.toLowerCase().includes(text));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
