import type { ComponentChildren } from 'preact';
import { shown } from '../model/text.ts';
import type { Told } from '../rpc.ts';

/** A column of a table: its name, and what it shows of a row. */
export interface Column<T> {
  readonly name: string;
  /** A number, which is aligned right. */
  readonly right?: boolean;
  /** On a phone, the line of its row that it stands in. If any column has one, those without are left out there. */
  readonly line?: 1 | 2;
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
 * column's name before it, or into two lines if columns say so.
 */
export function Table<T>({ title, columns, rows, keyOf, bad, selected, none = '', most, more }: TableProps<T>) {
  if (rows.length === 0) return <p class="none">{none}</p>;
  const listed = rows.slice(0, most);
  const brief = columns.some(({ line }) => line !== undefined);
  const lasts = new Set([1, 2].map((line) => columns.findLast((column) => column.line === line)));
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must take the keyboard (axe: scrollable-region-focusable). */}
      <section class="scroll" aria-label={title} tabIndex={0}>
        <table class={brief ? 'brief' : undefined}>
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
              <tr key={keyOf(row)} class={classes({ bad: bad?.(row), selected: selected?.(row) })}>
                {columns.map((column) => (
                  <td
                    key={column.name}
                    class={classes({ right: column.right, rest: lasts.has(column) })}
                    data-column={column.name}
                    data-line={column.line}
                  >
                    {column.of(row)}
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

function classes(which: Readonly<Record<string, boolean | undefined>>): string | undefined {
  const names = Object.keys(which).filter((name) => which[name]);
  return names.join(' ') || undefined;
}

/** Says which of several members did not answer, and why. */
export function Silent({ told = [] }: { readonly told?: readonly Told<unknown>[] | undefined }) {
  return told.map(
    ({ member, error }) =>
      error && (
        <p key={member.id} class="fault">
          Without {shown(member.id)}: {shown(error.message, 300)}
        </p>
      ),
  );
}
