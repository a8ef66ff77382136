import { FINDINGS } from './defaults.ts';

type Outcome = 'pass' | 'warn' | 'fail';

/** The kinds of checks in their order, and what each looks at. Each has a section in docs/OPERATE.md. */
export const CHECKS = {
  certificates: 'dates, purpose, names and issuer: of files, ports and programs',
  socket: '--uds-name: does a server listen there, where others can see it?',
  redis: '--redis-url: reachable, new enough, the primary, every right?',
  members: 'does every gateway and hub answer, and is it ready?',
  missing: 'which gateways, hubs and agents have gone missing?',
  refusals: 'who was refused in the last five minutes, and why?',
  clocks: 'do the clocks of members, Redis and this machine agree?',
  versions: 'do all members run one version?',
  config: 'do replicas of one program have the same flags?',
  tenants: 'are their files in force, and their certificates valid?',
  limits: 'is a tenant near one of its limits?',
  links: 'does every gateway reach every hub, and Redis?',
  ports: "are the hubs' ports open from this machine?",
  agents: 'does every agent have sessions with two hubs?',
  callers: 'what did callers fail to reach of late, and why?',
  dials: 'does a real dial through each agent reach it?',
} as const;

export type CheckName = keyof typeof CHECKS;

/** The result of one check. */
export interface Result {
  readonly check: CheckName;
  /** What was checked: a file, a member, an agent. */
  readonly about: string;
  readonly outcome: Outcome;
  readonly detail: string;
  /** What to do. Set unless it passed. */
  readonly todo?: string;
  /** The section of the documentation about it. Set unless it passed. */
  readonly docs?: string;
  /** It did not happen again for a while: it fades. */
  readonly old?: boolean;
}

/** A result that did not pass. */
export type Finding = Required<Omit<Result, 'old'>> & Pick<Result, 'old'>;

/** Makes the results of one kind of check. */
export interface Report {
  pass(about: string, detail: string): Result;
  warn(about: string, detail: string, todo: string): Finding;
  fail(about: string, detail: string, todo: string): Finding;
}

export function reportOf(check: CheckName): Report {
  const docs = `docs/OPERATE.md#${check}`;
  return {
    pass: (about, detail) => ({ check, about, outcome: 'pass', detail }),
    warn: (about, detail, todo) => ({ check, about, outcome: 'warn', detail, todo, docs }),
    fail: (about, detail, todo) => ({ check, about, outcome: 'fail', detail, todo, docs }),
  };
}

/** Keeps what did not pass: failures first, what is old last. */
export function findingsIn(results: readonly Result[]): Finding[] {
  const found = (outcome: Outcome) => results.filter((result): result is Finding => result.outcome === outcome);
  const all = [...found('fail'), ...found('warn')];
  return [...all.filter(({ old }) => !old), ...all.filter(({ old }) => old)];
}

/** Names an agent, with its tenant where there are others. */
export function agentName(tenant: string, id: string): string {
  return tenant === 'default' ? id : `${id} of ${tenant}`;
}

/** `1 agent`, `2 agents`. */
export function plural(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** Formats bytes in powers of 1000: `0 B`, `999 B`, `1.5 kB`, `12 MB`. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0)} ${BYTE_UNITS[unit]}`;
}

export function millis(ms: number | undefined): string {
  if (ms === undefined) return '–';
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 10_000) return `${Math.round(ms).toLocaleString('en')} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Two units at most: `3 h 20 min`. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const DAY_MS = 86_400_000;

/** Says when a certificate ends that has few days left, or none. */
export function endsSoon(
  expiresMs: number,
  now: number,
): { readonly over: boolean; readonly text: string } | undefined {
  if (expiresMs - now >= FINDINGS.certificateDays * DAY_MS) return undefined;
  return { over: expiresMs < now, text: endText(expiresMs, now) };
}

/** `expired on 2026-05-01`, `expires on 2026-05-04, in 3 days` */
export function endText(expiresMs: number, now: number): string {
  const left = expiresMs - now;
  const on = new Date(expiresMs).toISOString().slice(0, 10);
  const days = Math.floor(left / DAY_MS);
  if (left < 0) return `expired on ${on}`;
  return `expires on ${on}, in ${days < 2 ? age(left) : plural(days, 'day')}`;
}
