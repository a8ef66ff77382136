import { adviceFor } from '@isthmus/findings';
import { useEffect, useState } from 'preact/hooks';
import { dialLine } from '../model/dial-line.ts';
import { gatewaysOf, type Seen } from '../model/plane.ts';
import { shown } from '../model/text.ts';
import { CopyLine } from '../parts/copy.tsx';
import { Findings } from '../parts/findings.tsx';
import { useAsked } from '../parts/use-plane.ts';
import { Waterfall } from '../parts/waterfall.tsx';
import { act, read, reasonOf } from '../rpc/client.ts';
import type { Explanation, TriedDial } from '../rpc/messages.ts';
import { CheckPanel } from './check-panel.tsx';
import { ExplainPicture } from './explain-picture.tsx';
import { Refusals } from './refusals.tsx';
import { ownAddress, type ViewProps } from './view.ts';

const LOOK_MS = 5000;

interface Asked {
  readonly destination: string;
  readonly tenant: string;
  readonly caller: string;
}

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
      <Findings findings={findings} known={plane.at > 0} />
      <CheckPanel plane={plane} agents={agents} />
      <RefusedInTheLastHour members={plane.members} now={plane.at} />
    </>
  );
}

function Explained({ asked, gateway }: { readonly asked: Asked; readonly gateway: Seen }) {
  const [state, setState] = useState<{ answer?: Explanation; fault?: unknown }>({});
  const [tried, setTried] = useState<{ busy?: boolean; answer?: TriedDial; fault?: unknown }>({});
  const { origin = '' } = gateway;
  useEffect(() => {
    let ended = false;
    const settle = (next: typeof state) => {
      if (!ended) setState(next);
    };
    read(origin, 'Explain', asked).then(
      (answer) => settle({ answer }),
      (fault: unknown) => settle({ fault }),
    );
    return () => {
      ended = true;
    };
  }, [asked, origin]);
  if (state.fault !== undefined) {
    return (
      <p class="fault" role="alert">
        {shown(reasonOf(state.fault), 500)}
      </p>
    );
  }
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
      {tried.fault !== undefined && (
        <p class="fault" role="alert">
          {shown(reasonOf(tried.fault), 500)}
        </p>
      )}
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
  const asked = members.filter(({ status }) => status !== undefined);
  const list = async () => {
    const answers = await Promise.allSettled(
      asked.map(async ({ id, origin = '' }) => {
        const { refusals } = await read(origin, 'GetHistory', {});
        return refusals.map((refusal) => ({ member: id, refusal }));
      }),
    );
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  };
  const { answer = [] } = useAsked(list, LOOK_MS, asked.map(({ id }) => id).join());
  return (
    <section aria-labelledby="refused">
      <h2 id="refused">Connections refused in the last hour</h2>
      <Refusals refusals={answer} now={now} />
    </section>
  );
}
