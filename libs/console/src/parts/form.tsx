import type { JSX } from 'preact';
import type { Seen } from '../model/plane.ts';
import { shown } from '../model/text.ts';

type FieldProps = JSX.IntrinsicElements['input'] & {
  readonly label: string;
  /** Called at each letter. */
  readonly typed?: (text: string) => void;
  /** Called when the text is complete. */
  readonly entered?: (text: string) => void;
};

/** A text that an operator types. */
export function Field({ label, class: name, typed, entered, ...input }: FieldProps) {
  return (
    <label class={name}>
      {label}{' '}
      <input
        {...input}
        onInput={typed && (({ currentTarget }) => typed(currentTarget.value))}
        onChange={entered && (({ currentTarget }) => entered(currentTarget.value))}
      />
    </label>
  );
}

interface ChoiceProps {
  readonly label: string;
  /** What all of them together are called, where they can be chosen: an empty text. */
  readonly all?: string | undefined;
  readonly from: readonly string[];
  readonly chosen: string | undefined;
  readonly choose: (text: string) => void;
}

/** One of several texts. */
export function Choice({ label, all, from, chosen, choose }: ChoiceProps) {
  return (
    <label>
      {label}{' '}
      <select value={chosen} onChange={({ currentTarget }) => choose(currentTarget.value)}>
        {all !== undefined && <option value="">{all}</option>}
        {from.map((each) => (
          <option key={each} value={each}>
            {shown(each)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Chooses the member whose own view is shown, or all. */
export function MemberChoice({
  members,
  ...props
}: Omit<ChoiceProps, 'label' | 'from'> & { readonly members: readonly Seen[] }) {
  return <Choice label="Member" from={members.map(({ id }) => id)} {...props} />;
}
