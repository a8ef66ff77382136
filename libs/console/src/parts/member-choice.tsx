import type { Seen } from '../model/plane.ts';
import { shown } from '../model/text.ts';

interface MemberChoiceProps {
  readonly members: readonly Seen[];
  readonly chosen: string | undefined;
  readonly choose: (id: string) => void;
}

/** Chooses the member whose own view is shown. */
export function MemberChoice({ members, chosen, choose }: MemberChoiceProps) {
  return (
    <label>
      Member{' '}
      <select value={chosen} onChange={({ currentTarget }) => choose(currentTarget.value)}>
        {members.map(({ id }) => (
          <option key={id} value={id}>
            {shown(id)}
          </option>
        ))}
      </select>
    </label>
  );
}
