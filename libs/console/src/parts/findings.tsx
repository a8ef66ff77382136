import type { Finding } from '@isthmus/findings';
import { sumOf, toneOf } from '../model/findings.ts';
import { shown } from '../model/text.ts';
import { State } from './state.tsx';

/** What is wrong and what to do, announced when it changes. */
export function Findings({ findings, known }: { readonly findings: readonly Finding[]; readonly known: boolean }) {
  return (
    <section class={`findings ${known ? toneOf(findings) : 'looking'}`} aria-labelledby="findings">
      <h2 id="findings">
        {!known ? (
          'Looking …'
        ) : findings.length === 0 ? (
          <State tone="good" word="Nothing is wrong that this page can see" />
        ) : (
          `What is wrong: ${sumOf(findings)}`
        )}
      </h2>
      <FindingList findings={findings} />
    </section>
  );
}

export function FindingList({ findings }: { readonly findings: readonly Finding[] }) {
  return (
    <ul>
      {findings.map(({ check, about, outcome, detail, todo, docs }) => (
        <li key={`${check} ${about} ${detail.slice(0, 40)}`}>
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
