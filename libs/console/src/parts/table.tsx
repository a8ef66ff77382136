import type { ComponentChildren } from 'preact';
import type { Seen, Told } from '../model/plane.ts';
import { shown } from '../model/text.ts';

interface Column {
  readonly name: string;
  /** A number, which is aligned right. */
  readonly right?: boolean;
}

interface Row {
  readonly key: string;
  readonly cells: readonly ComponentChildren[];
  /** Marks a row that is wrong. */
  readonly bad?: boolean;
  readonly selected?: boolean;
}

interface TableProps {
  readonly title: string;
  readonly columns: readonly Column[];
  readonly rows: readonly Row[];
  /** Shown instead of an empty table. */
  readonly none: string;
}

/**
 * A table that scrolls sideways where the window is narrow, also by keyboard. On a phone each row is folded into lines, a cell each, with the
 * column's name before it.
 */
export function Table({ title, columns, rows, none }: TableProps) {
  if (rows.length === 0) return <p class="none">{none}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must take the keyboard (axe: scrollable-region-focusable).
    <section class="scroll" aria-label={title} tabIndex={0}>
      <table>
        <caption class="unseen">{title}</caption>
        <thead>
          <tr>
            {columns.map(({ name, right }) => (
              <th key={name} scope="col" class={right ? 'right' : undefined}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells, bad, selected }) => (
            <tr key={key} class={`${bad ? 'bad' : ''} ${selected ? 'selected' : ''}`.trim() || undefined}>
              {cells.map((cell, index) => (
                <td
                  key={columns[index]?.name}
                  class={columns[index]?.right ? 'right' : undefined}
                  data-column={columns[index]?.name}
                >
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface MemberChoiceProps {
  readonly members: readonly Seen[];
  /** What all of them together are called, where they can be chosen: an empty id. */
  readonly all?: string | undefined;
  readonly chosen: string | undefined;
  readonly choose: (id: string) => void;
}

/** Chooses the member whose own view is shown, or all. */
export function MemberChoice({ members, all, chosen, choose }: MemberChoiceProps) {
  return (
    <label>
      Member{' '}
      <select value={chosen} onChange={({ currentTarget }) => choose(currentTarget.value)}>
        {all !== undefined && <option value="">{all}</option>}
        {members.map(({ id }) => (
          <option key={id} value={id}>
            {shown(id)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Says which of several members did not answer, and why. */
export function Silent({ told = [] }: { readonly told?: readonly Told<unknown>[] | undefined }) {
  return told.map(
    ({ member, fault }) =>
      fault !== undefined && (
        <p key={member.id} class="fault">
          Without {shown(member.id)}: {shown(fault, 300)}
        </p>
      ),
  );
}
