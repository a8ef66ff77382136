import type { Finding } from '@isthmus/findings';
import { shown } from '../model/text.ts';
import { State } from './state.tsx';

/** What is wrong and what to do, announced when it changes. */
export function Findings({ findings, known }: { readonly findings: readonly Finding[]; readonly known: boolean }) {
  const failed = findings.filter(({ outcome }) => outcome === 'fail').length;
  const sum = `${failed} failed, ${findings.length - failed} warned`;
  return (
    <section class={`findings ${failed > 0 ? 'bad' : findings.length > 0 ? 'warn' : ''}`} aria-labelledby="findings">
      <h2 id="findings">
        {!known ? (
          'Looking …'
        ) : findings.length === 0 ? (
          <State tone="good" word="Nothing is wrong that this page can see" />
        ) : (
          `What is wrong: ${sum}`
        )}
      </h2>
      <FindingList findings={findings} />
    </section>
  );
}

export function FindingList({ findings }: { readonly findings: readonly Finding[] }) {
  return (
    <ul>
      {findings.map(({ check, about, outcome, detail, todo }) => (
        <li key={`${check} ${about} ${detail.slice(0, 40)}`}>
          <State tone={outcome === 'fail' ? 'bad' : 'warn'} word={outcome === 'fail' ? 'fail' : 'warn'} />{' '}
          <b>{check}</b> {shown(about, 120)}: {shown(detail, 400)}
          <div class="todo">→ {shown(todo, 400)}</div>
        </li>
      ))}
    </ul>
  );
}
