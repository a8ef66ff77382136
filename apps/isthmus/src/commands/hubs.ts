import { adminApi } from '@isthmus/proto/admin';
import { type Call, command } from '../command.ts';
import type { Column } from '../output/fit.ts';
import { isoTime } from '../output/json.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { age } from '../output/units.ts';
import type { Answer, Unanswered } from '../plane/member.ts';
import { linkFailuresOf } from '../plane/warnings.ts';

/** How a gateway reaches a hub. */
interface LinkView {
  readonly member: string;
  readonly link: 'own' | 'up' | 'down';
  /** For a link that is down: the reason in the gateway's log. */
  readonly reason?: string;
}

interface HubView {
  readonly hub: string;
  readonly zone: string;
  readonly draining: boolean;
  readonly since: string;
  readonly ageMs: number;
  readonly peerAddress: string;
  readonly agentAddress: string;
  readonly sessions: number;
  readonly links: readonly LinkView[];
}

interface HubsView {
  readonly hubs: readonly HubView[];
  readonly unanswered: readonly Unanswered[];
}

export const hubs = command({
  name: 'hubs',
  summary: 'List hubs, the gateways that reach each, and the number of its sessions',
  details: 'Exits with 1 if a gateway cannot reach a hub.',
  examples: [{ line: 'hubs', does: 'all hubs that any member knows' }],
  async run({ output, plane }: Call) {
    const met = await plane();
    const { answers, unanswered } = await met.ask(
      async (admin, signal) => (await admin.listMembers({}, { signal })).hubs,
      'gateway',
      'hub',
    );
    const cut = answers.filter(({ value }) => value.some(({ link }) => LINKS[link] === 'down'));
    const failures = await linkFailuresOf(
      met,
      cut.map(({ member }) => member),
    );
    const view = { hubs: hubsOf(answers, failures), unanswered };
    output.show(view, () => hubsText(view, output.style));
    return statusOf(
      view.hubs.some(({ links }) => links.some(({ link }) => link === 'down')),
      unanswered,
    );
  },
});

const LINKS: Readonly<Record<number, LinkView['link']>> = {
  [adminApi.Hub_Link.LINK_OWN]: 'own',
  [adminApi.Hub_Link.LINK_UP]: 'up',
  [adminApi.Hub_Link.LINK_DOWN]: 'down',
};

/** Returns each hub once, with every gateway's link to it. The hub's own answer about itself takes precedence. */
export function hubsOf(
  answers: readonly Answer<adminApi.Hub[]>[],
  failures: ReadonlyMap<string, ReadonlyMap<string, string>>,
): HubView[] {
  const found = new Map<string, { hub: adminApi.Hub; links: LinkView[] }>();
  for (const { member, value } of answers) {
    for (const hub of value) {
      const known = found.get(hub.hubId) ?? { hub, links: [] };
      if (member.hubId === hub.hubId) known.hub = hub;
      const link = LINKS[hub.link];
      const reason = link === 'down' ? failures.get(member.id)?.get(hub.hubId) : undefined;
      if (link && member.roles.includes('gateway'))
        known.links.push({ member: member.id, link, ...(reason && { reason }) });
      found.set(hub.hubId, known);
    }
  }
  const now = Date.now();
  return [...found.values()]
    .map(({ hub, links }) => ({
      hub: hub.hubId,
      zone: hub.zone,
      draining: hub.draining,
      since: isoTime(hub.sinceMs),
      ageMs: Math.max(0, now - Number(hub.sinceMs)),
      peerAddress: hub.peerAddress,
      agentAddress: hub.agentAddress,
      sessions: hub.sessions,
      links,
    }))
    .sort((a, b) => a.hub.localeCompare(b.hub, 'en', { numeric: true }));
}

export function hubsText({ hubs, unanswered }: HubsView, style: Style): string {
  const rows = hubs.map((hub) => {
    const usable = hub.links.filter(({ link }) => link !== 'down').length;
    const links = `${usable} of ${hub.links.length}`;
    return [
      hub.hub,
      hub.zone,
      hub.draining ? style.warning('draining') : style.good('open'),
      age(hub.ageMs),
      String(hub.sessions),
      usable < hub.links.length ? style.bad(links) : links,
      hub.peerAddress,
      hub.agentAddress,
    ];
  });
  const down = hubs.flatMap(({ hub, peerAddress, links }) =>
    links
      .filter(({ link }) => link === 'down')
      .map(
        ({ member, reason = 'not tried yet' }) => `  ${member} does not reach ${hub} at ${peerAddress}: ${reason}\n`,
      ),
  );
  const todo = 'Check that the hub runs, its --advertise-address and --peer-port, and --peer-ca-cert of both.\n';
  const columns: readonly Column[] = [
    { name: 'hub', least: 12 },
    { name: 'zone', drop: 1 },
    { name: 'state' },
    { name: 'age', drop: 3 },
    { name: 'sessions', right: true },
    { name: 'gateways' },
    { name: 'for gateways', drop: 4 },
    { name: 'for agents', drop: 2 },
  ];
  const problems = down.length > 0 ? `\nNo link:\n${down.join('')}${todo}` : '';
  const body = rows.length > 0 ? table(columns, rows, style) : 'No hub is known: agents cannot connect.\n';
  return body + problems + unansweredText(unanswered);
}
