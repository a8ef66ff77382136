import { FlagError } from './error.ts';
import type { FlagTable } from './flag.ts';

export interface Listener {
  readonly flag: string;
  readonly bind: string;
  readonly host: string;
  readonly port: number;
}

/** Returns the listeners that a table's values ask for. */
export function listenersOf(table: FlagTable, values: Readonly<Record<string, unknown>>): Listener[] {
  return Object.entries(table).flatMap(([flag, { port: listener }]) => {
    if (!listener) return [];
    const port = values[flag] as number;
    return [{ flag, bind: listener.bind, host: values[listener.bind] as string, port }];
  });
}

/**
 * Checks every listener's port: it is within its range, and no two listeners share one.
 * @param closed flags of listeners that will not be opened
 */
export function checkPorts(
  table: FlagTable,
  values: Readonly<Record<string, unknown>>,
  closed: readonly string[] = [],
): void {
  const taken: Listener[] = [];
  for (const listener of listenersOf(table, values)) {
    const { flag, port, host } = listener;
    if (closed.includes(flag)) continue;
    const rule = table[flag]?.port;
    if (!rule || (rule.optional && port === 0)) continue;
    if (port < rule.lowest || port > rule.highest) {
      const off = rule.optional ? ', or 0 for none' : '';
      throw new FlagError(flag, `bad port ${port}: want ${rule.lowest} to ${rule.highest}${off}`);
    }
    const other = taken.find((one) => one.port === port && (one.host === host || one.host === '' || host === ''));
    if (other) throw new FlagError(flag, `--${other.flag} uses port ${port} too`);
    taken.push(listener);
  }
}
