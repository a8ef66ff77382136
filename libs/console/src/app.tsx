import { Role } from '@isthmus/proto/admin-enums';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { findingsOf, lostOf, sumOf, toneOf } from './model/findings.ts';
import { agentsOf, type Plane, selfOf } from './model/plane.ts';
import { clock, shown } from './model/text.ts';
import { type Action, Confirm } from './parts/confirm.tsx';
import { usePlane } from './parts/follow.ts';
import { State } from './parts/text.tsx';
import type { Settings } from './rpc.ts';
import { ActionsView } from './views/actions.tsx';
import { DialsView } from './views/dials.tsx';
import { PlaneView } from './views/plane.tsx';
import { TimeView } from './views/time.tsx';
import { TunnelsView } from './views/tunnels.tsx';
import { WhyView } from './views/why.tsx';

const VIEWS = {
  plane: { title: 'Plane', View: PlaneView },
  dials: { title: 'Dials', View: DialsView },
  tunnels: { title: 'Tunnels', View: TunnelsView },
  why: { title: 'Why', View: WhyView },
  time: { title: 'Time', View: TimeView },
  actions: { title: 'Actions', View: ActionsView },
} as const;
type ViewName = keyof typeof VIEWS;

/** The whole page: a bar of views, the chosen view, and the dialog of an action. */
export function App({ settings }: { readonly settings: Settings }) {
  const [name, ...path] = useRoute();
  const [plane, lookNow] = usePlane(settings.member);
  const [action, ask] = useState<Action>();
  const [said, say] = useState('');
  const agents = useMemo(() => agentsOf(plane.sessions, plane.hubs, lostOf(plane, Role.ROLE_AGENT)), [plane]);
  const findings = useMemo(() => findingsOf(plane), [plane]);
  const view = isView(name) ? name : 'plane';
  const { title, View } = VIEWS[view];
  const old = plane.fault !== '';
  const wrong = findings.length > 0 && !old ? sumOf(findings) : '';
  useEffect(() => {
    const alarm = old ? `does not answer${asOf(plane, ', as of ')}` : wrong;
    const begin = alarm === '' ? '' : `${alarm}: `;
    document.title = `${begin}${title}, ${shown(selfOf(plane)?.id ?? '')}: Isthmus`;
  }, [title, plane, old, wrong]);
  const done = (result: string | undefined) => {
    ask(undefined);
    if (result === undefined) return;
    say(result);
    lookNow();
  };
  const props = { plane, agents, findings, settings, ask, path };
  return (
    <>
      <header>
        <h1>Isthmus</h1>
        <nav aria-label="Views">
          {(Object.keys(VIEWS) as ViewName[]).map((each) => (
            <a key={each} href={`#/${each}`} aria-current={each === view ? 'page' : undefined}>
              {VIEWS[each].title}
            </a>
          ))}
        </nav>
        {wrong !== '' && (
          <a href="#/plane">
            <State tone={toneOf(findings)} word={wrong} />
          </a>
        )}
        <Where plane={plane} tenant={settings.tenant} />
      </header>
      <p class="said" role="status">
        {said}
      </p>
      {old && <Hangs plane={plane} />}
      <main id="view" class={old ? 'old' : undefined}>
        <View {...props} />
      </main>
      {action && <Confirm action={action} done={done} />}
    </>
  );
}

/** Which member this is, and whether what the page shows is old. */
function Where({ plane, tenant }: { readonly plane: Plane; readonly tenant: string }) {
  const self = selfOf(plane);
  const name = self?.status?.plane || self?.status?.program || '';
  return (
    <p class="where">
      {self && (
        <>
          <b>{shown(self.id)}</b>
          {name !== '' && ` of ${shown(name)}`}
          {tenant !== '' && `, tenant ${shown(tenant)}`}{' '}
        </>
      )}
      {plane.fault !== '' ? (
        <State tone="bad" word="does not answer" />
      ) : (
        <State tone={plane.at > 0 ? 'good' : 'calm'} word={plane.at > 0 ? `live, ${clock(plane.at)}` : 'looking'} />
      )}
    </p>
  );
}

/** The member that the page asks says nothing: what the page shows is from before, and another member's console may know more. */
function Hangs({ plane }: { readonly plane: Plane }) {
  const others = plane.members.filter(({ self, address }) => !self && address !== '');
  const name = shown(selfOf(plane)?.id ?? '') || 'The member of this page';
  return (
    <section class="findings bad" role="alert">
      <h2>
        <State tone="bad" word={`${name} does not answer${asOf(plane, ': everything below is as of ')}`} />
      </h2>
      {shown(plane.fault, 300)}
      <div class="todo">
        → check that it runs, and read its log. One that runs and does not answer hangs: restart it
        {others.length > 0 && `. The consoles of others say how the plane is: ${addresses(others)}`}
      </div>
    </section>
  );
}

function addresses(members: Plane['members']): string {
  return members.map(({ id, address }) => `${shown(id)} at ${shown(address)}`).join(', ');
}

/** When the member answered last, behind a word; empty if it never did. */
function asOf({ at }: Plane, before: string): string {
  return at > 0 ? `${before}${clock(at)}` : '';
}

function isView(name: string | undefined): name is ViewName {
  return name !== undefined && Object.hasOwn(VIEWS, name);
}

/** The parts of the address after `#/`, so that a view can be linked and kept. */
function useRoute(): string[] {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return hash.replace(/^#\/?/, '').split('/').map(decoded);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return '';
  }
}
