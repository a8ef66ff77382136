import type { adminApi } from '@isthmus/proto/admin';
import { Argument, Option } from 'commander';
import { duration } from '../arguments.ts';
import { type Call, command } from '../command.ts';
import { EXIT, Failure } from '../exit.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { age, bytes, plural } from '../output/units.ts';
import { memberOf } from '../plane/choose.ts';
import type { Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';

interface Options {
  readonly dryRun?: true;
  readonly wait?: number;
}

interface DrainView {
  readonly hub: string;
  readonly dryRun: boolean;
  readonly sessions: number;
  readonly tunnels: number;
  /** In a dry run, the number of agents without a session elsewhere. */
  readonly stranded?: number;
  readonly gracefulMs?: number;
  readonly moves?: readonly {
    readonly session: string;
    readonly tenant: string;
    readonly agent: string;
    readonly elsewhere: number;
    readonly tunnels: number;
  }[];
  readonly running?: readonly {
    readonly dial: string;
    readonly destination: string;
    readonly agent: string;
    readonly ageMs: number;
    readonly bytes: number;
  }[];
}

export const drain = command({
  name: 'drain',
  summary: 'Drain a hub: it takes no new dials while its agents move and its tunnels finish',
  details:
    'Only a restart of the hub undoes it. Works for gateways and all-in-one servers too. A dry run exits with 1 if an agent would be left without a session, --wait if tunnels are left.',
  args: [new Argument('<hub>', 'its id, from isthmus hubs')],
  options: [
    new Option('--dry-run', 'only show what would move, and what might be cut'),
    new Option('--wait <duration>', 'wait up to this long until no tunnel is left').argParser(duration),
  ],
  examples: [
    { line: 'drain hub-1 --dry-run', does: 'which agents have no other hub?' },
    { line: 'drain hub-1 --wait 5m', does: 'before hub-1 is stopped' },
  ],
  async run({ args: [id = ''], options, output, plane, terminal }: Call<Options>) {
    const met = await plane();
    const member = memberOf(met, id);
    if (options.dryRun) {
      const view = dryRunView(id, await ask(met, member, { dryRun: true }));
      output.show(view, () => dryRunText(view, output.style));
      return view.stranded === 0 ? EXIT.good : EXIT.wrong;
    }
    const left = await drained(met, member, options.wait ?? 0, terminal.interrupted);
    const view: DrainView = { hub: id, dryRun: false, sessions: left.sessions, tunnels: left.tunnels };
    output.show(
      view,
      () => `${id} drains: ${plural(left.sessions, 'session')} and ${plural(left.tunnels, 'tunnel')} are left\n`,
    );
    return options.wait !== undefined && left.tunnels > 0 ? EXIT.wrong : EXIT.good;
  },
});

async function ask(plane: Plane, member: Member, request: { dryRun?: boolean }): Promise<adminApi.DrainResponse> {
  const { answers, unanswered } = await plane.askThese([member], (admin, signal) => admin.drain(request, { signal }));
  const [answer] = answers;
  if (answer) return answer.value;
  throw new Failure(EXIT.unasked, `${member.id} at ${member.address}: ${unanswered.at(-1)?.reason}`);
}

const ASK_AGAIN_MS = 500;

/** Asks for a drain, then polls what is left until nothing is or the time is over. */
async function drained(plane: Plane, member: Member, waitMs: number, signal: AbortSignal) {
  const end = performance.now() + waitMs;
  for (;;) {
    const left = await ask(plane, member, {});
    if (left.tunnels === 0 || signal.aborted || performance.now() >= end) return left;
    await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
  }
}

function dryRunView(hub: string, { sessions, tunnels, plan }: adminApi.DrainResponse): DrainView {
  return {
    hub,
    dryRun: true,
    sessions,
    tunnels,
    stranded: plan?.stranded ?? 0,
    ...(plan?.gracefulMs !== undefined && { gracefulMs: Number(plan.gracefulMs) }),
    moves: (plan?.moves ?? []).map(({ sessionId: session, agentId: agent, tenant, elsewhere, tunnels: through }) => {
      return { session, tenant, agent, elsewhere, tunnels: through };
    }),
    running: (plan?.running ?? []).map(({ dialId, destination, agentId, ageMs, bytesUp, bytesDown }) => {
      const moved = Number(bytesUp + bytesDown);
      return { dial: dialId, destination, agent: agentId, ageMs: Number(ageMs), bytes: moved };
    }),
  };
}

/** Enough to decide; -o json lists the rest. */
const SHOWN_ROWS = 20;

export function dryRunText(view: DrainView, style: Style): string {
  const { hub, sessions, tunnels, stranded = 0, gracefulMs, moves = [], running = [] } = view;
  const right = (name: string) => ({ name, right: true }) as const;
  const rows = moves
    .slice(0, SHOWN_ROWS)
    .map(({ agent, tenant, elsewhere, tunnels: through, session }) => [
      agent,
      tenant,
      elsewhere === 0 ? style.bad('none') : String(elsewhere),
      String(through),
      session,
    ]);
  const cut = running
    .slice(0, SHOWN_ROWS)
    .map((tunnel) => [tunnel.destination, tunnel.agent, age(tunnel.ageMs), bytes(tunnel.bytes), tunnel.dial]);
  const lost = stranded > 0 ? `, ${stranded} of them with nowhere else to go` : '';
  return [
    `Draining ${hub} would send away ${plural(sessions, 'session')}${lost}; ${plural(tunnels, 'tunnel')} would run on until it ends. Nothing was changed.\n`,
    rows.length > 0
      ? `\n${table(['agent', 'tenant', right('sessions elsewhere'), right('tunnels'), 'session'], rows)}`
      : '',
    more(moves.length),
    cut.length > 0
      ? `\n${fateOf(hub, gracefulMs)}:\n${table(['destination', 'agent', 'age', right('bytes'), 'dial'], cut)}`
      : '',
    more(running.length),
    stranded > 0
      ? `\n${style.bad(`${plural(stranded, 'session')} ${stranded === 1 ? 'has' : 'have'} nowhere else to go`)}: until its agent has another hub, dials to that agent wait or fail.\nGive such agents --session-count=2 or more, or wait until they have connected to another hub.\n`
      : '',
  ].join('');
}

/** What becomes of the tunnels that run: a drain waits for them, the end of the process may not. */
function fateOf(hub: string, gracefulMs: number | undefined): string {
  if (gracefulMs === undefined) return `Running now. Draining cuts none, and ${hub} waits for them before it stops`;
  const grace = gracefulMs === 0 ? '' : ` after ${gracefulMs / 1000} s`;
  return `Running now. Draining cuts none; stopping ${hub} cuts those that still run${grace}`;
}

function more(count: number): string {
  return count > SHOWN_ROWS ? `and ${count - SHOWN_ROWS} more (-o json lists them)\n` : '';
}
