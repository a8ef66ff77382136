import type { adminApi } from '@isthmus/proto/admin';
import { Argument, Option } from 'commander';
import { type Call, command } from '../command.ts';
import { EXIT, Failure, usage } from '../exit.ts';
import { table } from '../output/table.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { plural } from '../output/units.ts';
import type { Plane } from '../plane/plane.ts';

interface Options {
  readonly reason?: string;
  readonly lift?: true;
}

export const quarantine = command({
  name: 'quarantine',
  summary: 'Keep new dials away from an agent, let it out again, or list who is in',
  details: 'Holds in the whole plane. Tunnels that run through the agent go on: isthmus kick ends them.',
  args: [new Argument('[agent]', "the agent's id; without one, those in quarantine are listed")],
  options: [
    new Option('--reason <text>', 'why, for others who find it there').conflicts('lift'),
    new Option('--lift', 'let it out'),
  ],
  examples: [
    { line: 'quarantine', does: 'who is in, and why' },
    { line: 'quarantine agent-3 --reason "disk full on node 7"', does: 'no new dials to agent-3' },
    { line: 'quarantine agent-3 --lift', does: 'take it back' },
  ],
  async run({ args: [agentId], options, output, plane }: Call<Options>) {
    const { reason = '', lift = false, tenant } = options;
    if (agentId === undefined) {
      if (lift || reason !== '') throw usage('name the agent: isthmus quarantine AGENT');
      const { agents, unanswered } = await listed(await plane(), tenant);
      output.show({ agents, unanswered }, () => listText(agents) + unansweredText(unanswered));
      return statusOf(false, unanswered);
    }
    if (!lift && reason === '') throw usage('say why, for others who find it there: --reason TEXT');
    const { by, sessions, tunnels } = await change(await plane(), { agent: { agentId, tenant }, lift, reason });
    output.show({ agent: agentId, quarantined: !lift, by, sessions, tunnels }, () => {
      const done = lift ? 'takes dials again' : 'takes no new dials';
      const rest = `${plural(sessions, 'session')} known at ${by}`;
      return `${agentId} ${done}; ${rest}${lift ? '' : `, ${plural(tunnels, 'tunnel')} there ${tunnels === 1 ? 'goes' : 'go'} on`}\n`;
    });
    return EXIT.good;
  },
});

/** The registry carries it to all: one member that is asked is enough. */
async function change(plane: Plane, request: adminApi.DeepPartial<adminApi.QuarantineRequest>) {
  const failures: string[] = [];
  const members = plane.members.filter(({ roles }) => roles.includes('hub') || roles.includes('gateway'));
  for (const member of members) {
    const { answers, unanswered } = await plane.askThese([member], (admin, signal) =>
      admin.quarantine(request, { signal }),
    );
    const [answer] = answers;
    if (answer) return { by: member.id, ...answer.value };
    failures.push(`${member.id}: ${unanswered.at(-1)?.reason}`);
  }
  throw new Failure(EXIT.unasked, `nobody could be told: ${failures.join('; ') || 'no gateway or hub is known'}`);
}

interface QuarantinedView {
  readonly tenant: string;
  readonly agent: string;
  readonly reason: string;
}

async function listed(plane: Plane, tenant: string) {
  const { answers, unanswered } = await plane.ask(
    async (admin, signal) => (await admin.listQuarantined({}, { signal })).agents,
    'gateway',
    'hub',
  );
  const found = new Map<string, QuarantinedView>();
  for (const { tenant: of, agentId: agent, reason } of answers.flatMap(({ value }) => value)) {
    if (tenant === '' || of === tenant) found.set(JSON.stringify([of, agent]), { tenant: of, agent, reason });
  }
  return { agents: [...found.values()], unanswered };
}

export function listText(agents: readonly QuarantinedView[]): string {
  if (agents.length === 0) return 'No agent is in quarantine\n';
  return table(
    ['agent', 'tenant', 'reason'],
    agents.map(({ agent, tenant, reason }) => [agent, tenant, reason]),
  );
}
