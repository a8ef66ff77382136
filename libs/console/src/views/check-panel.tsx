import { findingsIn, type Result } from '@isthmus/findings';
import { useState } from 'preact/hooks';
import { check, usableOf } from '../model/check.ts';
import { toneOf } from '../model/findings.ts';
import { plural, shown } from '../model/text.ts';
import { CopyLine } from '../parts/copy.tsx';
import { FindingList } from '../parts/findings.tsx';
import { reasonOf } from '../rpc/client.ts';
import { ownAddress, selfOf, type ViewProps } from './view.ts';

/** `isthmus check`, as far as a browser can run it. */
export function CheckPanel({ plane, agents }: Pick<ViewProps, 'plane' | 'agents'>) {
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
      {fault !== undefined && (
        <p class="fault" role="alert">
          {shown(reasonOf(fault), 300)}
        </p>
      )}
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
