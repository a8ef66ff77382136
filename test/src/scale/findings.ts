/** Figures of a phase, as one table of the report. Rows of tables with the same title are put together. */
export interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** Something that must hold. */
export interface Check {
  readonly what: string;
  readonly holds: boolean;
  /** What was found instead. */
  readonly found: string;
  /** Whether it depends on how fast the machine is, and what else it does. */
  readonly timed: boolean;
}

export interface Findings {
  readonly tables: readonly Table[];
  readonly checks: readonly Check[];
  /** Processor time of gateways and hubs a dial, by the number of agents. */
  readonly dialCpu?: ReadonlyMap<number, number>;
}

export function check(what: string, holds: boolean, found: string | number): Check {
  return { what, holds, found: String(found), timed: false };
}

/** A check that only a whole run makes. */
export function timedCheck(what: string, holds: boolean, found: string | number): Check {
  return { ...check(what, holds, found), timed: true };
}

/** Puts the findings of phases together, in their order. */
export function merged(all: readonly Findings[]): Findings {
  const tables = new Map<string, Table>();
  for (const table of all.flatMap((each) => each.tables)) {
    const rows = [...(tables.get(table.title)?.rows ?? []), ...table.rows];
    tables.set(table.title, { ...table, rows });
  }
  const dialCpu = new Map(all.flatMap((each) => [...(each.dialCpu ?? [])]));
  const checks = [...all.flatMap((each) => each.checks), ...costOfDials(dialCpu)];
  return { tables: [...tables.values()], checks };
}

/** A dial may cost this much more with many agents than with few: processors' caches and clocks are part of what is measured. */
const GROWN = 1.5;

function costOfDials(cpu: ReadonlyMap<number, number>): Check[] {
  const byAgents = [...cpu].sort(([a], [b]) => a - b);
  const [least, most] = [byAgents[0], byAgents.at(-1)];
  if (!least || !most || least === most) return [];
  const what = `a dial with ${most[0]} agents costs no more than ${GROWN} times one with ${least[0]}`;
  return [timedCheck(what, most[1] <= GROWN * least[1], (most[1] / least[1]).toFixed(2))];
}

/** Text for figures. */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

export function millis(ms: number): string {
  return `${ms.toFixed(ms < 10 ? 2 : ms < 100 ? 1 : 0)} ms`;
}

export function kib(bytes: number): string {
  return `${(bytes / 1024).toFixed(bytes < 100 * 1024 ? 1 : 0)} KiB`;
}

export function mib(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(0)} MiB`;
}

export function whole(number: number): string {
  return Math.round(number).toLocaleString('en-US');
}
