import type { Finding } from '@isthmus/findings';
import { useEffect, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { sumOf, toneOf } from '../model/findings.ts';
import type { Health, Plane } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { reasonOf } from '../rpc.ts';

/** Characters of a name that is not broken into lines: a table scrolls sideways instead. */
const BRIEF_NAME = 24;

/** A text that a peer chose. `bdi` keeps its direction from turning what stands around it. */
export function Name({ text, most }: { readonly text: string; readonly most?: number }) {
  return (
    <bdi
      class={text.length > BRIEF_NAME ? 'name' : 'name brief'}
      title={text.length > (most ?? 64) ? shown(text, 500) : undefined}
    >
      {shown(text, most)}
    </bdi>
  );
}

/** How good a state is, for its colour. */
export type Tone = 'good' | 'warn' | 'bad' | 'draining' | 'calm';

export const TONES: Readonly<Record<Health, Tone>> = {
  ok: 'good',
  unready: 'bad',
  draining: 'draining',
  drained: 'draining',
  silent: 'warn',
  unlinked: 'bad',
  hung: 'bad',
  lost: 'bad',
};

/** The style of what has the colour of a tone. */
export function toned(tone: Tone) {
  return { '--tone': `var(--${tone})` };
}

const MARKS: Readonly<Record<Tone, string>> = { good: '●', warn: '▲', bad: '■', draining: '◆', calm: '○' };

/** Characters of a state that stays beside its mark. */
const BRIEF_STATE = 20;

/** A state in a word, with a mark and a colour: no colour stands alone. */
export function State({ tone, word }: { readonly tone: Tone; readonly word: string }) {
  return (
    <span class={word.length > BRIEF_STATE ? 'state' : 'state brief'} style={toned(tone)}>
      <span aria-hidden="true">{MARKS[tone]}</span> {word}
    </span>
  );
}

/** Why something that was asked for did not come. Nothing without an error. */
export function Fault({ error, most = 300 }: { readonly error: unknown; readonly most?: number }) {
  if (error === undefined) return null;
  return (
    <p class="fault" role="alert">
      {shown(reasonOf(error), most)}
    </p>
  );
}

/** A command line, and a button that copies it. The clipboard is closed to pages in plain text from elsewhere: then the line is there to select. */
export function CopyLine({ line }: { readonly line: string | undefined }) {
  const [said, say] = useState('');
  useEffect(() => {
    if (said === '') return undefined;
    const timer = setTimeout(() => say(''), CONSOLE.copiedMs);
    return () => clearTimeout(timer);
  }, [said]);
  if (line === undefined) return <p class="none">A name of this dial has characters that no terminal should get.</p>;
  const copy = () => {
    const done = navigator.clipboard?.writeText(line) ?? Promise.reject();
    done.then(
      () => say('Copied'),
      () => say('Select it and copy'),
    );
  };
  return (
    <p class="copy">
      <code>{line}</code>
      <button type="button" onClick={copy}>
        Copy
      </button>
      <span role="status">{said}</span>
    </p>
  );
}

/** What is wrong and what to do, announced when it changes. */
export function Findings({ findings, plane }: { readonly findings: readonly Finding[]; readonly plane: Plane }) {
  const known = plane.at > 0;
  const then = plane.fault === '' ? '' : ` at ${clock(plane.at)}`;
  return (
    <section class={`findings ${known ? toneOf(findings) : 'looking'}`} aria-labelledby="findings">
      <h2 id="findings">
        {!known ? (
          'Looking …'
        ) : findings.length === 0 ? (
          <State
            tone="good"
            word={then === '' ? 'Nothing is wrong that this page can see' : `Nothing was wrong${then}`}
          />
        ) : (
          `What ${then === '' ? 'is' : 'was'} wrong${then}: ${sumOf(findings)}`
        )}
      </h2>
      <FindingList findings={findings} />
    </section>
  );
}

function FindingList({ findings }: { readonly findings: readonly Finding[] }) {
  return (
    <ul>
      {findings.map(({ check, about, outcome, detail, todo, docs, old }) => (
        <li key={`${check} ${about} ${detail.slice(0, 40)}`} class={old ? 'old' : undefined}>
          <State tone={outcome === 'fail' ? 'bad' : 'warn'} word={outcome === 'fail' ? 'fail' : 'warn'} />{' '}
          <b>{check}</b> {shown(about, 120)}: {shown(detail, 400)}
          <div class="todo">
            → {shown(todo, 400)} ({docs})
          </div>
        </li>
      ))}
    </ul>
  );
}
