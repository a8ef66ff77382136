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
  summary: 'Keep new dials away from an agent, lift that again, or list agents in quarantine',
  details:
    "Applies to the whole plane. Open tunnels through the agent stay open; isthmus kick ends them. A plane with tenants needs --tenant; without tenants, the agent is one of the gateway's own. Exits with 1 if no such agent is known.",
  args: [new Argument('[agent]', "the agent's id; without it, lists agents in quarantine")],
  options: [
    new Option('--reason <text>', 'why, for other operators').conflicts('lift'),
    new Option('--lift', 'lift the quarantine'),
  ],
  examples: [
    { line: 'quarantine', does: 'agents in quarantine, and why' },
    { line: 'quarantine agent-3 --reason "disk full on node 7"', does: 'no new dials to agent-3' },
    { line: 'quarantine agent-3 --lift', does: 'let it take dials again' },
  ],
  async run({ args: [agentId], options, output, plane }: Call<Options>) {
    const { reason = '', lift = false, tenant } = options;
    if (agentId === undefined) {
      if (lift || reason !== '') throw usage('name the agent: isthmus quarantine AGENT');
      const { agents, unanswered } = await listed(await plane(), tenant);
      output.show({ agents, unanswered }, () => listText(agents) + unansweredText(unanswered));
      return statusOf(false, unanswered);
    }
    if (!lift && reason === '') throw usage('say why, for other operators: --reason TEXT');
    const changed = await change(await plane(), { agent: { agentId, tenant }, lift, reason });
    const shown = { agent: agentId, quarantined: !lift, ...changed };
    output.show(shown, () => changeText(shown));
    return changed.known ? EXIT.good : EXIT.wrong;
  },
});

type ChangeView = adminApi.QuarantineResponse & {
  readonly agent: string;
  readonly quarantined: boolean;
  readonly by: string;
};

export function changeText({ agent, tenant, quarantined, by, known, sessions, tunnels }: ChangeView): string {
  const name = `${agent} of tenant ${tenant}`;
  if (!known) {
    const rest = quarantined ? 'It is in quarantine anyway if it connects' : 'It was not in quarantine';
    return `No agent ${name} is known at ${by}: check the name and --tenant. ${rest}\n`;
  }
  const there = `${plural(sessions, 'session')} known at ${by}`;
  if (!quarantined) return `${name} takes dials again; ${there}\n`;
  const rest = `${plural(tunnels, 'tunnel')} ${tunnels === 1 ? 'stays' : 'stay'} open`;
  return `${name} takes no new dials; ${there}, ${rest}\n`;
}

/** Asks one member, because the registry spreads the change to all. Tries gateways first: they know all sessions, and have a tenant. */
async function change(plane: Plane, request: adminApi.DeepPartial<adminApi.QuarantineRequest>) {
  const failures: string[] = [];
  const isGateway = ({ roles }: Plane['members'][number]) => roles.includes('gateway');
  const hubs = plane.members.filter((member) => member.roles.includes('hub') && !isGateway(member));
  for (const member of [...plane.members.filter(isGateway), ...hubs]) {
    const { answers, unanswered } = await plane.askThese([member], (admin, signal) =>
      admin.quarantine(request, { signal }),
    );
    const [answer] = answers;
    if (answer) return { by: member.id, ...answer.value };
    failures.push(`${member.id}: ${unanswered.at(-1)?.reason}`);
  }
  throw new Failure(EXIT.unasked, `no gateway or hub took the change: ${failures.join('; ') || 'none is known'}`);
}

interface QuarantinedView {
  readonly tenant: string;
  readonly agent: string;
  readonly reason: string;
}

async function listed(plane: Plane, tenant: string) {
  const { answers, unanswered } = await plane.ask(
    async (admin, signal) => (await admin.listQuarantined({ tenant }, { signal })).agents,
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
