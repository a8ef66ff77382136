import { type Style, unansweredText } from '../output.ts';
import type { Unanswered } from '../plane/member.ts';
import { type Column, table } from '../table.ts';

export interface CandidateView {
  readonly agent: string;
  readonly hub: string;
  readonly session: string;
  readonly zone: string;
  readonly key: string;
  /** `equal`: as good as the one taken. `later`: used when all better ones are gone. `not`: not for this dial, or not usable now. */
  readonly standing: 'taken' | 'equal' | 'later' | 'not';
  /** Why it is not the first choice. */
  readonly why: string;
  readonly tunnels: number;
}

export interface StepView {
  readonly strategy: string;
  readonly taken: boolean;
  readonly keys: readonly { readonly key: string; readonly sessions: number }[];
  readonly candidates: readonly CandidateView[];
}

export interface GatewayView {
  readonly gateway: string;
  readonly tenant: string;
  readonly zone: string;
  readonly verdict: string;
  /** Empty if no session would take the dial. */
  readonly agent: string;
  readonly hub: string;
  readonly session: string;
  readonly steps: readonly StepView[];
  /** Sessions that no strategy selects. */
  readonly others: readonly CandidateView[];
  readonly advice: readonly string[];
  /** What the tenant's policy says. Unset for a tenant without one. */
  readonly policy?: { readonly allowed: boolean; readonly rule: string };
}

export interface ExplainView {
  readonly destination: string;
  readonly gateways: readonly GatewayView[];
  readonly unanswered: readonly Unanswered[];
}

/** Gateways with the same answer are shown once. */
export function explainText({ destination, gateways, unanswered }: ExplainView, style: Style): string {
  const groups = new Map<string, GatewayView[]>();
  for (const gateway of gateways) {
    const same = JSON.stringify([gateway.steps.map(outline), gateway.agent !== '', gateway.tenant, gateway.policy]);
    groups.set(same, [...(groups.get(same) ?? []), gateway]);
  }
  const parts = [...groups.values()].map((group) => {
    const [first] = group as [GatewayView];
    const names = group.map(({ gateway }) => gateway).join(', ');
    return `${style.strong(`${destination}, tenant ${first.tenant}, at ${names}`)}\n${gatewayText(first, style)}`;
  });
  return parts.join('\n') + unansweredText(unanswered);
}

/** Which of several equal sessions is taken, and how many tunnels each has, changes all the time, so both are left out. */
function outline({ strategy, taken, candidates }: StepView) {
  const standings = candidates.map(
    ({ session, standing }) => `${session} ${standing === 'taken' ? 'equal' : standing}`,
  );
  return [strategy, taken, standings.sort()];
}

function gatewayText({ verdict, agent, steps, others, advice, policy, tenant }: GatewayView, style: Style): string {
  const paint = agent === '' ? style.bad : style.good;
  const left = others.length > 0 ? `\nAgents that no strategy chooses:\n${candidates(others, style)}` : '';
  const todo = advice.length > 0 ? `\nWhat to do:\n${advice.map((line) => `  - ${line}\n`).join('')}` : '';
  // A refusal is in the verdict.
  const rule = policy?.rule ? `by rule ${policy.rule}` : 'no rule refuses it';
  const allowed = policy?.allowed
    ? `Allowed by the policy of tenant ${tenant}: ${rule}. Agents check the addresses of a name again.\n`
    : '';
  return `${paint(verdict)}\n${allowed}\n${steps.map((step, index) => stepText(step, index, style)).join('')}${todo}${left}`;
}

function stepText({ strategy, taken, keys, candidates: found }: StepView, index: number, style: Style): string {
  const looked = keys.map(({ key, sessions }) => `${key} (${sessions})`).join(', ') || 'does not apply';
  const mark = taken ? `  ${style.good('<- chosen')}` : '';
  return `${index + 1}. ${strategy}: ${looked}${mark}\n${candidates(found, style)}`;
}

const STANDING_TEXTS: Readonly<Record<CandidateView['standing'], string>> = {
  taken: 'takes it',
  equal: 'as good',
  later: 'later',
  not: 'no',
};

/** A plane may have a thousand. The first ones are enough. */
const SHOWN_CANDIDATES = 20;

const INDENT = '     ';

const COLUMNS: readonly Column[] = [
  { name: 'standing' },
  { name: 'agent', least: 10 },
  { name: 'hub', least: 8 },
  { name: 'zone', drop: 1 },
  { name: 'found by', least: 8, drop: 3 },
  { name: 'tunnels', right: true, drop: 2 },
  { name: 'why', least: 20 },
];

function candidates(all: readonly CandidateView[], style: Style): string {
  if (all.length === 0) return '';
  const rows = all
    .slice(0, SHOWN_CANDIDATES)
    .map((each) => [
      standingText(each.standing, style),
      each.agent,
      each.hub,
      each.zone,
      each.key,
      String(each.tunnels),
      each.why,
    ]);
  const room = { ...style, columns: style.columns - INDENT.length };
  const lines = table(COLUMNS, rows, room).trimEnd().split('\n');
  const more =
    all.length > SHOWN_CANDIDATES ? `${INDENT}and ${all.length - SHOWN_CANDIDATES} more (-o json lists them)\n` : '';
  return `${lines.map((line) => `${INDENT}${line}`).join('\n')}\n${more}`;
}

function standingText(standing: CandidateView['standing'], style: Style): string {
  const text = STANDING_TEXTS[standing];
  if (standing === 'taken') return style.good(text);
  return standing === 'not' ? style.bad(text) : text;
}
