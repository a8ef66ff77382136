import { adviceFor, age, FINDINGS, findingsIn, plural, type Result } from '@isthmus/findings';
import { useEffect, useState } from 'preact/hooks';
import { dialLine } from '../model/dials.ts';
import { check, toneOf, usableOf } from '../model/findings.ts';
import { gatewaysOf, ownAddress, type Seen, selfOf } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { Waterfall } from '../parts/chart.tsx';
import { useHistories } from '../parts/follow.ts';
import { type Column, Table } from '../parts/table.tsx';
import { CopyLine, Fault, FindingList, Findings, Name } from '../parts/text.tsx';
import { act, type Explanation, type Refusal, read, type TriedDial } from '../rpc.ts';
import { ExplainPicture } from './explain-picture.tsx';
import type { ViewProps } from './view.ts';

/** Why a dial goes where it goes, or nowhere; what is wrong with the plane; who was refused. */
export function WhyView({ plane, agents, findings, path, settings }: ViewProps & { readonly path: readonly string[] }) {
  const [destination = '', tenant = settings.tenant] = path;
  const [form, setForm] = useState<Asked>({ destination, tenant, caller: '' });
  const [asked, ask] = useState<Asked | undefined>(destination === '' ? undefined : form);
  useEffect(() => {
    if (destination === '') return;
    const linked = { destination, tenant, caller: '' };
    setForm(linked);
    ask(linked);
  }, [destination, tenant]);
  const [gateway] = gatewaysOf(plane);
  const field = (name: keyof Asked) => ({
    value: form[name],
    onInput: ({ currentTarget }: { readonly currentTarget: HTMLInputElement }) =>
      setForm({ ...form, [name]: currentTarget.value }),
  });
  const submit = (event: Event) => {
    event.preventDefault();
    ask({ ...form, destination: form.destination.trim() });
  };
  return (
    <>
      <section aria-labelledby="explain">
        <h2 id="explain">Which way does a dial go?</h2>
        <form class="filter" onSubmit={submit}>
          <label>
            Destination <input {...field('destination')} required placeholder="10.0.0.1:443" />
          </label>
          <label>
            Tenant <input {...field('tenant')} placeholder="the gateway's own" />
          </label>
          <label>
            Caller <input {...field('caller')} placeholder="for rules that name callers" />
          </label>
          <button type="submit">Explain</button>
        </form>
        {plane.at > 0 && !gateway && <p class="fault">No gateway can be asked from here.</p>}
        {asked && gateway && <Explained key={JSON.stringify(asked)} asked={asked} gateway={gateway} />}
      </section>
      <Findings findings={findings} plane={plane} />
      <CheckPanel plane={plane} agents={agents} />
      <RefusedInTheLastHour members={plane.members} now={plane.at} />
    </>
  );
}

interface RefusedAt {
  readonly member: string;
  readonly refusal: Refusal;
}

/** Connections of agents and callers that were turned away, with the reasons: the newest first. */
export function Refusals({ refusals, now }: { readonly refusals: readonly RefusedAt[]; readonly now: number }) {
  const columns: readonly Column<RefusedAt>[] = [
    { name: 'From', of: ({ refusal }) => <Name text={refusal.remote} /> },
    { name: 'At', of: ({ member }) => <Name text={member} /> },
    { name: 'Port for', of: ({ refusal }) => <Name text={refusal.where} /> },
    { name: 'Reason', of: ({ refusal }) => <Name text={refusal.reason} most={300} /> },
    { name: 'Times', right: true, of: ({ refusal }) => refusal.count.toLocaleString('en') },
    { name: 'First', of: ({ refusal }) => clock(refusal.firstMs) },
    { name: 'Last', of: ({ refusal }) => `${age(now - refusal.lastMs)} ago` },
  ];
  const isOld = ({ refusal }: RefusedAt) => now - refusal.lastMs > FINDINGS.oldMs;
  return (
    <Table
      title="Refused connections"
      columns={columns}
      rows={refusals.toSorted((a, b) => b.refusal.lastMs - a.refusal.lastMs)}
      keyOf={({ member, refusal: { where, remote, reason } }) => `${member} ${where} ${remote} ${reason}`}
      bad={(row) => !isOld(row)}
      old={isOld}
      none="None."
    />
  );
}

interface Asked {
  readonly destination: string;
  readonly tenant: string;
  readonly caller: string;
}

function Explained({ asked, gateway }: { readonly asked: Asked; readonly gateway: Seen }) {
  const [state, setState] = useState<{ answer?: Explanation; fault?: unknown }>({});
  const [tried, setTried] = useState<{ busy?: boolean; answer?: TriedDial; fault?: unknown }>({});
  const { id } = gateway;
  useEffect(() => {
    let ended = false;
    const settle = (next: typeof state) => {
      if (!ended) setState(next);
    };
    read(id, 'Explain', asked).then(
      (answer) => settle({ answer }),
      (fault: unknown) => settle({ fault }),
    );
    return () => {
      ended = true;
    };
  }, [asked, id]);
  if (state.fault !== undefined) return <Fault error={state.fault} most={500} />;
  if (!state.answer) return <p>Asking {shown(gateway.id)} …</p>;
  const { destination, tenant } = state.answer;
  const dial = () => {
    setTried({ busy: true });
    act('Dial', { destination, tenant, firstByteTimeoutMs: 1000 }).then(
      (answer) => setTried({ answer }),
      (fault: unknown) => setTried({ fault }),
    );
  };
  return (
    <>
      <ExplainPicture explanation={state.answer} gateway={gateway.id} />
      {gateway.self ? (
        <p class="buttons">
          <button type="button" disabled={tried.busy} onClick={dial}>
            {tried.busy ? 'Dialling …' : 'Dial it now'}
          </button>
          <span>opens a real tunnel, waits a second for a byte, and closes it</span>
        </p>
      ) : (
        <p>To dial it now, open the console of a gateway, or run:</p>
      )}
      <CopyLine line={dialLine({ destination, tenant, agentId: '' }, { address: ownAddress(), gateway: '' })} />
      <Fault error={tried.fault} most={500} />
      {tried.answer && <Tried answer={tried.answer} />}
    </>
  );
}

function Tried({ answer: { dial, phases, firstByteMs, ended } }: { readonly answer: TriedDial }) {
  const said =
    ended !== '' ? `It ended: ${ended}` : 'It was silent for a second, as servers are that wait for the client';
  return (
    <div role="status">
      <p class={dial?.error ? 'fault' : ''}>
        {dial?.error ? `It failed: ${shown(dial.error.code)}: ${shown(dial.error.text, 500)}` : 'The tunnel opened.'}{' '}
        {!dial?.error && firstByteMs === undefined && `${shown(said, 300)}.`}
      </p>
      {dial?.error && <p class="todo">→ {adviceFor(dial.error.code)}</p>}
      <Waterfall phases={phases} failed={dial?.error !== undefined} />
    </div>
  );
}

function RefusedInTheLastHour({ members, now }: { readonly members: readonly Seen[]; readonly now: number }) {
  const { answer = [] } = useHistories(members.filter(({ status }) => status !== undefined));
  const refusals = answer.flatMap(({ member: { id }, answer: history }) =>
    (history?.refusals ?? []).map((refusal) => ({ member: id, refusal })),
  );
  return (
    <section aria-labelledby="refused">
      <h2 id="refused">Connections refused in the last hour</h2>
      <Refusals refusals={refusals} now={now} />
    </section>
  );
}

/** `isthmus check`, as far as a browser can run it. */
function CheckPanel({ plane, agents }: Pick<ViewProps, 'plane' | 'agents'>) {
  const [state, setState] = useState<{ done?: number; results?: readonly Result[]; fault?: unknown }>({});
  const self = selfOf(plane);
  const gateway = self?.roles.includes('gateway') ? self : undefined;
  const run = () => {
    setState({ done: 0 });
    check(plane, { agents, gateway, progress: (done) => setState({ done }) }).then(
      (results) => setState({ results }),
      (fault: unknown) => setState({ fault }),
    );
  };
  const { done, results, fault } = state;
  return (
    <section aria-labelledby="check">
      <h2 id="check">Check the plane</h2>
      <p>
        Looks at all that members say, and at their flags
        {gateway ? `, and dials through each of ${plural(usableOf(agents).length, 'agent')}` : ''}.{' '}
        {!gateway && 'The console of a gateway also dials through each agent. '}
        Files, and the certificates of ports, are seen by the command line alone:
      </p>
      <CopyLine line={`isthmus check --address=${ownAddress()}`} />
      <p class="buttons">
        <button type="button" disabled={done !== undefined || plane.at === 0} onClick={run}>
          {done === undefined ? 'Run the check' : `Checking: ${plural(done, 'agent')} dialled …`}
        </button>
      </p>
      <Fault error={fault} />
      {results && <Report results={results} />}
    </section>
  );
}

function Report({ results }: { readonly results: readonly Result[] }) {
  const findings = findingsIn(results);
  const passed = results.filter(({ outcome }) => outcome === 'pass');
  const failed = findings.filter(({ outcome }) => outcome === 'fail').length;
  return (
    <div class={`findings ${toneOf(findings)}`}>
      <p role="status">
        {plural(results.length, 'check')}: {passed.length} passed, {findings.length - failed} warned, {failed} failed
      </p>
      <FindingList findings={findings} />
      <details>
        <summary>What passed</summary>
        <ul>
          {passed.map(({ check: kind, about, detail }) => (
            <li key={`${kind} ${about}`}>
              <b>{kind}</b> {shown(about, 120)}: {shown(detail, 200)}
            </li>
          ))}
        </ul>
      </details>
    </div>
  );
}
