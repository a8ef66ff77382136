import { adminApi, namesOf } from '@isthmus/proto/admin';
import { Option } from 'commander';
import { type Call, command, destinationArgument } from '../command.ts';
import { EXIT, statusOf } from '../output.ts';
import { agentsAway } from '../plane/evidence.ts';
import type { Answer } from '../plane/member.ts';
import { membersWith } from '../plane/plane.ts';
import { type CandidateView, type ExplainView, explainText, type GatewayView, type StepView } from './explain-text.ts';

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
  examples: [
    { line: 'explain 10.20.3.4:10250', does: 'strategy, agents and hubs that lead to a kubelet' },
    { line: 'explain db.internal:5432 --tenant team-a', does: "among one tenant's agents, by its policy" },
  ],
  async run({
    args: [destination = ''],
    options,
    output,
    plane,
  }: Call<{ readonly gateway?: string; readonly caller: string }>) {
    const met = await plane();
    const { tenant, gateway, caller } = options;
    const { answers, unanswered } = await met.askThese(membersWith(met, 'gateway', gateway), (admin, signal) =>
      admin.explain({ destination, tenant, caller }, { signal }),
    );
    const unserved = answers.some(({ value }) => value.sessionId === '' && value.policy?.allowed !== false);
    const away = unserved ? await agentsAway(met, tenant) : [];
    const gateways = answers.map(gatewayView).map((view) => {
      return view.session === '' ? { ...view, advice: [...view.advice, ...away] } : view;
    });
    const view: ExplainView = { destination, gateways, unanswered };
    output.show(view, () => explainText(view, output.style));
    if (answers.length === 0) return EXIT.unasked;
    return statusOf(
      answers.some(({ value }) => value.sessionId === ''),
      unanswered,
    );
  },
});

function gatewayView({ member, value }: Answer<adminApi.ExplainResponse>): GatewayView {
  return {
    gateway: member.id,
    tenant: value.tenant,
    zone: value.zone,
    verdict: value.verdict,
    agent: value.agentId,
    hub: value.hubId,
    session: value.sessionId,
    steps: value.steps.map(stepView),
    others: value.others.map(candidateView),
    advice: value.advice,
    ...(value.policy && { policy: { allowed: value.policy.allowed, rule: value.policy.rule } }),
  };
}

function stepView({ strategy, keys, taken, candidates }: adminApi.RoutingStep): StepView {
  return {
    strategy,
    taken,
    keys: keys.map(({ key, sessions }) => ({ key, sessions })),
    candidates: candidates.map(candidateView),
  };
}

const STANDINGS = namesOf(adminApi.Candidate_Standing, 'STANDING');

function candidateView(candidate: adminApi.Candidate): CandidateView {
  return {
    agent: candidate.agentId,
    hub: candidate.hubId,
    session: candidate.sessionId,
    zone: candidate.zone,
    key: candidate.key,
    standing: STANDINGS[candidate.standing] ?? 'not',
    why: candidate.why,
    tunnels: candidate.open,
  };
}
