import { useEffect, useState } from 'preact/hooks';
import type { Seen } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import type { Action } from '../parts/confirm.tsx';
import { act, reasonOf } from '../rpc/client.ts';
import type { LogLevels } from '../rpc/messages.ts';
import type { ViewProps } from './view.ts';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];
const TIMES = [
  { ms: 600_000, word: '10 minutes' },
  { ms: 3_600_000, word: 'an hour' },
  { ms: 86_400_000, word: 'a day' },
  { ms: 0, word: 'until it is changed' },
];

/** `isthmus log-level`. */
export function LogLevelPanel({ member, ask }: Pick<ViewProps, 'ask'> & { readonly member: Seen }) {
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
