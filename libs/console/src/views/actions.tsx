import { shown } from '../model/text.ts';
import { DrainPanel } from './drain-panel.tsx';
import { LogLevelPanel } from './log-level-panel.tsx';
import { QuarantinePanel } from './quarantine-panel.tsx';
import { SessionsPanel } from './sessions-panel.tsx';
import { consoleOf, selfOf, type ViewProps } from './view.ts';

/** What an operator does to this member, and to the plane through it. Each action is audited. */
export function ActionsView(props: ViewProps) {
  const { plane, settings } = props;
  const self = selfOf(plane);
  const others = plane.members.flatMap((member) => {
    const href = consoleOf(member, 'actions');
    return href === undefined ? [] : [{ id: member.id, href }];
  });
  // What concerns the whole process is refused to operators of one tenant.
  const whole = settings.tenant === '';
  return (
    <>
      <p>
        Actions here are those of member <b>{shown(self?.id ?? '')}</b>; quarantine applies to the whole plane.{' '}
        {others.length > 0 && 'Other members: '}
        {others.map(({ id, href }) => (
          <a key={id} class="other" href={href}>
            {shown(id)}
          </a>
        ))}
      </p>
      <QuarantinePanel {...props} />
      {self?.roles.includes('hub') && <SessionsPanel {...props} hub={self.id} />}
      {whole && self && <DrainPanel ask={props.ask} member={self} />}
      {whole && self && <LogLevelPanel ask={props.ask} member={self} />}
    </>
  );
}
