import type { ComponentChildren } from 'preact';
import type { Seen, Told } from '../model/plane.ts';
import { shown } from '../model/text.ts';

/** A column of a table: its name, and what it shows of a row. */
export interface Column<T> {
  readonly name: string;
  /** A number, which is aligned right. */
  readonly right?: boolean;
  of(row: T): ComponentChildren;
}

interface TableProps<T> {
  readonly title: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  keyOf(row: T): string;
  /** Marks a row that is wrong. */
  bad?(row: T): boolean;
  selected?(row: T): boolean;
  /** Shown instead of an empty table. */
  readonly none?: string;
  /** How many rows are shown. */
  readonly most?: number;
  /** What is said below of those that are not shown, by their number: `3 tunnels more`. */
  more?(left: number): string;
}

/**
 * A table that scrolls sideways where the window is narrow, also by keyboard. On a phone each row is folded into lines, a cell each, with the
 * column's name before it.
 */
export function Table<T>({ title, columns, rows, keyOf, bad, selected, none = '', most, more }: TableProps<T>) {
  if (rows.length === 0) return <p class="none">{none}</p>;
  const listed = rows.slice(0, most);
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must take the keyboard (axe: scrollable-region-focusable). */}
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
            {listed.map((row) => (
              <tr
                key={keyOf(row)}
                class={`${bad?.(row) ? 'bad' : ''} ${selected?.(row) ? 'selected' : ''}`.trim() || undefined}
              >
                {columns.map(({ name, right, of }) => (
                  <td key={name} class={right ? 'right' : undefined} data-column={name}>
                    {of(row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {more && rows.length > listed.length && <p>And {more(rows.length - listed.length)}</p>}
    </>
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
