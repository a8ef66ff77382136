import { adminApi, namesOf } from '@isthmus/proto/admin';
import { Option } from 'commander';
import { type Call, command, destinationArgument } from '../command.ts';
import { type ListColumn, rowsTable } from '../lists.ts';
import { renamed, type Style } from '../output.ts';
import { agentsAway } from '../plane/evidence.ts';
import type { Answer } from '../plane/member.ts';
import { membersWith } from '../plane/plane.ts';

export const explain = command({
  name: 'explain',
  summary: 'Explain how a dial to a destination would be routed now, and why',
  details:
    'Dials nothing. Asks every gateway, since each routes by its own copy of the registry. A plane with tenants needs --tenant. Exits with 1 if no agent would take the dial.',
  args: [destinationArgument()],
  options: [
    new Option('--gateway <id>', 'ask only this gateway'),
    new Option('--caller <name>', "as this caller, for rules of the tenant's policy that name callers").default(
      '',
      'none',
    ),
  ],
  examples: {
    'explain 10.20.3.4:10250': 'strategy, agents and hubs that lead to a kubelet',
    'explain db.internal:5432 --tenant team-a': "among one tenant's agents, by its policy",
  },
  async run({
    args: [destination = ''],
    options,
    output,
    plane,
  }: Call<{ readonly gateway?: string; readonly caller: string }>) {
    const met = await plane();
    const { tenant, gateway, caller } = options;
    const members = membersWith(met, 'gateway', gateway);
    const { answers, unanswered } = await met.ask('explain', { destination, tenant, caller }, { members });
    const unserved = answers.some(({ value }) => value.sessionId === '' && value.policy?.allowed !== false);
    const away = unserved ? await agentsAway(met, tenant) : [];
    const gateways = answers.map(gatewayView).map((view) => {
      return view.session === '' ? { ...view, advice: [...view.advice, ...away] } : view;
    });
    const stranded = gateways.some(({ session }) => session === '');
    return output.answers({ destination, gateways, unanswered }, explainText, stranded);
  },
});

export type GatewayView = ReturnType<typeof gatewayView>;

function gatewayView({ member, value }: Answer<adminApi.ExplainResponse>) {
  const { destination: _asked, steps, others, policy, ...told } = value;
  return {
    gateway: member.id,
    /** The agent, hub and session are empty if no session would take the dial. */
    ...renamed(told),
    steps: steps.map(stepView),
    /** Sessions that no strategy selects. */
    others: others.map(candidateView),
    /** What the tenant's policy says, if it has one. */
    ...(policy && { policy }),
  };
}

type StepView = ReturnType<typeof stepView>;

function stepView(step: adminApi.RoutingStep) {
  return { ...step, candidates: step.candidates.map(candidateView) };
}

const STANDINGS = namesOf(adminApi.Candidate_Standing, 'STANDING');

type CandidateView = ReturnType<typeof candidateView>;

function candidateView({ sessionId, agentId, hubId, zone, key, standing, why, open }: adminApi.Candidate) {
  return {
    ...renamed({ sessionId, agentId, hubId, zone, key, why, open }),
    /** `equal`: as good as the one taken. `later`: used when all better ones are gone. `not`: not for this dial, or not usable now. */
    standing: STANDINGS[standing] ?? ('not' as const),
  };
}

interface ExplainView {
  readonly destination: string;
  readonly gateways: readonly GatewayView[];
}

/** Gateways with the same answer are shown once. */
export function explainText({ destination, gateways }: ExplainView, style: Style): string {
  const groups = Map.groupBy(gateways, ({ steps, agent, tenant, policy }) =>
    JSON.stringify([steps.map(outline), agent !== '', tenant, policy]),
  );
  const parts = [...groups.values()].map((group) => {
    const [first] = group as [GatewayView];
    const names = group.map(({ gateway }) => gateway).join(', ');
    return `${style.strong(`${destination}, tenant ${first.tenant}, at ${names}`)}\n${gatewayText(first, style)}`;
  });
  return parts.join('\n');
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

const STANDING_TEXTS = { taken: 'takes it', equal: 'as good', later: 'later', not: 'no' } as const;

/** A plane may have a thousand. The first ones are enough. */
const SHOWN_CANDIDATES = 20;

const INDENT = '     ';

const COLUMNS: readonly ListColumn<CandidateView>[] = [
  { name: 'standing', of: ({ standing }, style) => standingText(standing, style) },
  { name: 'agent', least: 10, of: ({ agent }) => agent },
  { name: 'hub', least: 8, of: ({ hub }) => hub },
  { name: 'zone', drop: 1, of: ({ zone }) => zone },
  { name: 'found by', least: 8, drop: 3, of: ({ key }) => key },
  { name: 'tunnels', right: true, drop: 2, of: ({ tunnels }) => String(tunnels) },
  { name: 'why', least: 20, of: ({ why }) => why },
];

function candidates(all: readonly CandidateView[], style: Style): string {
  if (all.length === 0) return '';
  const room = { ...style, columns: style.columns - INDENT.length };
  const lines = rowsTable(COLUMNS, all.slice(0, SHOWN_CANDIDATES), room).trimEnd().split('\n');
  const more =
    all.length > SHOWN_CANDIDATES ? `${INDENT}and ${all.length - SHOWN_CANDIDATES} more (-o json lists them)\n` : '';
  return `${lines.map((line) => `${INDENT}${line}`).join('\n')}\n${more}`;
}

function standingText(standing: CandidateView['standing'], style: Style): string {
  const text = STANDING_TEXTS[standing];
  if (standing === 'taken') return style.good(text);
  return standing === 'not' ? style.bad(text) : text;
}
