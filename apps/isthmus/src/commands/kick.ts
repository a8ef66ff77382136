import type { adminApi } from '@isthmus/proto/admin';
import { Argument, Option } from 'commander';
import { type Call, command } from '../command.ts';
import { EXIT, usage } from '../exit.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { plural } from '../output/units.ts';

type Target = NonNullable<adminApi.KickRequest['target']>;

const KINDS = ['agent', 'session', 'tunnel'] as const;

export const kick = command({
  name: 'kick',
  summary: "End an agent's sessions, one session, or one tunnel, at once",
  details:
    'An agent reconnects by itself; use quarantine to keep new dials away from it. On a plane with tenants, an agent needs --tenant. Exits with 1 if there is nothing with that name.',
  args: [
    new Argument('<what>', 'what to end').choices(KINDS),
    new Argument(
      '<id>',
      'id of the agent, of the session (isthmus agents --sessions) or of the dial (isthmus tunnels)',
    ),
  ],
  options: [new Option('--reason <text>', 'why, for logs and audit').default('', 'none')],
  examples: [
    { line: 'kick tunnel 3f9c2a7be1d04c55', does: 'end one tunnel, by the id of its dial' },
    { line: 'kick agent agent-3 --reason "stale version"', does: 'end its sessions and all tunnels in them' },
  ],
  async run({ args: [what = '', id = ''], options, output, plane }: Call<{ readonly reason: string }>) {
    const { reason, tenant } = options;
    const request = { target: targetOf(what, id, tenant), reason };
    const met = await plane();
    const roles = what === 'tunnel' ? [] : (['hub'] as const);
    const { answers, unanswered } = await met.ask(
      (admin, signal) => admin.kick(request, { signal }).catch(nothingThere),
      ...roles,
    );
    const sessions = [...new Set(answers.flatMap(({ value }) => value.sessionIds))];
    // A tunnel is ended at every member that it runs through, but counts once.
    const counts = answers.map(({ value }) => value.tunnels);
    const tunnels = what === 'tunnel' ? Math.max(0, ...counts) : counts.reduce((sum, count) => sum + count, 0);
    output.show({ what, id, sessions, tunnels, unanswered }, () => {
      const ended = `Ended ${plural(sessions.length, 'session')} and ${plural(tunnels, 'tunnel')}\n`;
      const none = `There is no ${what} ${id}: nothing was ended\n`;
      return (sessions.length + tunnels > 0 ? ended : none) + unansweredText(unanswered);
    });
    if (sessions.length + tunnels > 0) return EXIT.good;
    return statusOf(unanswered.length === 0, unanswered);
  },
});

function targetOf(what: string, id: string, tenant: string): Target {
  if (what === 'agent') return { $case: 'agent', value: { agentId: id, tenant } };
  if (what === 'session') return { $case: 'sessionId', value: id };
  if (what === 'tunnel') return { $case: 'dialId', value: id };
  throw usage(`want one of ${KINDS.join(', ')}`);
}

/** The answer of a member that has nothing of that name. */
function nothingThere(error: unknown): adminApi.KickResponse {
  if (/NOT_FOUND|UNIMPLEMENTED/.test(String(error))) return { sessionIds: [], tunnels: 0 };
  throw error;
}
