import { adviceFor } from '@isthmus/findings';
import { useEffect, useState } from 'preact/hooks';
import { dialLine } from '../model/dials.ts';
import { gatewaysOf, ownAddress, type Seen } from '../model/plane.ts';
import { shown } from '../model/text.ts';
import { Waterfall } from '../parts/chart.tsx';
import { useDone } from '../parts/follow.ts';
import { Field } from '../parts/form.tsx';
import { CopyLine, Fault, Findings } from '../parts/text.tsx';
import { act, askOne, type Explanation, type TriedDial } from '../rpc.ts';
import { ExplainPicture } from './explain-picture.tsx';
import type { ViewProps } from './view.ts';

/** Why a dial goes where it goes, or nowhere; what is wrong with the plane. */
export function WhyView({ plane, findings, path, settings }: ViewProps) {
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
    typed: (text: string) => setForm({ ...form, [name]: text }),
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
          <Field label="Destination" {...field('destination')} required placeholder="10.0.0.1:443" />
          <Field label="Tenant" {...field('tenant')} placeholder="the gateway's own" />
          <Field label="Caller" {...field('caller')} placeholder="for rules that name callers" />
          <button type="submit">Explain</button>
        </form>
        {plane.at > 0 && !gateway && <p class="fault">No gateway can be asked from here.</p>}
        {asked && gateway && <Explained key={JSON.stringify(asked)} asked={asked} gateway={gateway} />}
      </section>
      <Findings findings={findings} plane={plane} />
      <section aria-labelledby="check">
        <h2 id="check">Check files, ports and flags, and dial through each agent</h2>
        <CopyLine line={`isthmus check --address=${ownAddress()}`} />
      </section>
    </>
  );
}

interface Asked {
  readonly destination: string;
  readonly tenant: string;
  readonly caller: string;
}

function Explained({ asked, gateway }: { readonly asked: Asked; readonly gateway: Seen }) {
  const [state, explain] = useDone<Explanation>();
  const [tried, tryIt] = useDone<TriedDial>();
  const { id } = gateway;
  useEffect(() => explain(askOne(id, 'Explain', asked)), [asked, id]);
  if (state.fault !== undefined) return <Fault error={state.fault} most={500} />;
  if (!state.answer) return <p>Asking {shown(gateway.id)} …</p>;
  const { destination, tenant } = state.answer;
  const dial = () => tryIt(act(id, 'Dial', { destination, tenant, firstByteTimeoutMs: 1000 }));
  return (
    <>
      <ExplainPicture explanation={state.answer} gateway={gateway.id} />
      <p class="buttons">
        <button type="button" disabled={tried.busy} onClick={dial}>
          {tried.busy ? 'Dialling …' : 'Dial it now'}
        </button>
        <span>opens a real tunnel, waits a second for a byte, and closes it</span>
      </p>
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
