import type { adminApi } from '@isthmus/proto/admin';
import { DialState } from '@isthmus/proto/admin-enums';
import type { DialErrorCode } from '@isthmus/tunnel';
import { FINDINGS } from './defaults.ts';
import type { Dial, Evidence } from './evidence.ts';
import { age, millis, plural, type Report, type Result, reportOf } from './result.ts';

/** What callers fail to reach again and again. What several gateways saw is one finding. Hubs see the same dials, and less of them. */
export function ofCallers({ members, now }: Evidence, report: Report): Result[] {
  const all = members.flatMap(({ id, roles, status }) => {
    const failing = roles.includes('gateway') ? (status?.failing ?? []) : [];
    return failing.map((each) => ({ ...each, id, agoMs: (status?.nowMs ?? now) - each.lastMs }));
  });
  const groups = Map.groupBy(all, ({ tenant, destination, code }) => JSON.stringify([tenant, destination, code]));
  return [...groups.values()].flatMap((own) => {
    const [latest] = own.toSorted((a, b) => a.agoMs - b.agoMs);
    if (!latest) return [];
    const { tenant, destination, code, text, agoMs } = latest;
    const [of, asked] = tenant === 'default' ? ['', ''] : [`, tenant ${tenant}`, ` --tenant ${tenant}`];
    const agents = [...new Set(own.flatMap((each) => each.agents))];
    const count = own.reduce((sum, each) => sum + each.count, 0);
    // Of many agents a gateway names a few.
    const agentCount = Math.max(agents.length, ...own.map((each) => each.agentCount));
    const through = agents.length > 0 ? ` through ${named(agents, agentCount)}` : '';
    const detail = `${count} dials failed${through}, the last ${age(agoMs)} ago, and none succeeded since: ${code}: ${text}`;
    const about = `${destination}${of}, at ${own.map(({ id }) => id).join(', ')}`;
    const found = report.warn(about, detail, `${adviceFor(code)}; isthmus dial ${destination}${asked} tries it`);
    return [{ ...found, old: agoMs > FINDINGS.oldMs }];
  });
}

/** Dials that wait for a session. Some that wait for a moment are normal while agents move. */
export function ofParked({ members }: Evidence, report: Report): Result[] {
  return members.flatMap(({ id, status }) => {
    if (!status || status.parkedDials === 0) return [];
    const wait = status.parkedDials === 1 ? 'waits' : 'wait';
    const detail = `${plural(status.parkedDials, 'dial')} ${wait} for a session`;
    return [report.warn(id, detail, 'isthmus agents shows who has none, isthmus explain HOST:PORT why')];
  });
}

/** An agent's health port, by its default. Agents refuse to dial it, and only they can: the refusal shows the way to them. */
export const OWN_HEALTH_PORT = '127.0.0.1:8093';

/** Only an agent gives these answers, so the path to it works, whatever is behind it. */
const FROM_THE_AGENT = ['connection_refused', 'destination_ip_prohibited'];

function named(agents: readonly string[], count: number): string {
  const names = agents.join(', ');
  return agents.length < count ? `${count} agents, among them ${names}` : names;
}

/** Judges a dial through one agent. @param agent by `agentName` */
export function ofDial(gateway: string, agent: string, destination: string, { state, error, ms }: Dial): Result {
  const report = reportOf('dials');
  const about = `${gateway} through ${agent} to ${destination}`;
  if (state === DialState.DIAL_STATE_ESTABLISHED) return report.pass(about, `answers in ${millis(ms)}`);
  const code = error?.code ?? '';
  if (destination === OWN_HEALTH_PORT && FROM_THE_AGENT.includes(code)) {
    return report.pass(about, `the agent answers in ${millis(ms)} (${code})`);
  }
  return report.fail(about, `${code}: ${error?.text}`, adviceFor(code));
}

/** What to do about a failed dial, by the name of its error (RFC 9209). */
const ADVICE: Readonly<Record<DialErrorCode, string>> = {
  connection_refused: 'the agent reached the machine, but nothing listens on that port: check the destination itself',
  connection_timeout:
    "the destination did not answer the agent: a firewall or network policy between them drops packets (in Kubernetes, the destination's own NetworkPolicy must let agents' pods in), or the machine is down",
  destination_ip_unroutable: "the agent's network has no route there: another agent must serve it, see isthmus explain",
  dns_error: "the agent's resolver does not know the name, or fails as the text says: resolve it in the agent's pod",
  dns_timeout: "the agent's resolver does not answer: check DNS in the agent's network",
  destination_ip_prohibited:
    "if the text names a rule of a tenant's policy, it is in the tenant's file; if it names --allow-destinations or --deny-destinations, these flags of the agent decide; otherwise a route or firewall on its machine forbids the dial",
  http_request_denied: 'the caller may not dial: the audit log says who it is',
  http_request_error: 'the request is malformed: write host:port, with IPv6 in brackets',
  destination_unavailable: 'no agent can take the dial: isthmus explain says why, isthmus agents lists the agents',
  connection_limit_reached:
    'a limit of the plane is reached: the text names it, isthmus status counts pending dials, isthmus tunnels --sort age shows the oldest tunnels',
  connection_terminated: 'the session was lost before the answer: isthmus hubs and isthmus agents show what is left',
  proxy_internal_error: "the plane itself failed: read the gateway's log, and run isthmus diag to collect a report",
};

export function adviceFor(code: string): string {
  return ADVICE[code as DialErrorCode] ?? "read the gateway's log";
}

/** The cuts of one gateway's answer. */
interface CutsOfMember {
  /** The gateway. */
  readonly member: string;
  readonly cuts: readonly adminApi.Cut[];
}

/** A tunnel that was cut. `member` is the gateway where: for what `isthmus hold` told, the one that it names. */
type PlaneCut = adminApi.Cut & { readonly member: string };

/** The cuts of all gateways that answered, each once, the last first: hold also tells some gateway of what another has seen. */
export function cutsIn(answers: readonly CutsOfMember[]): PlaneCut[] {
  const all = answers.flatMap(({ member, cuts }) => cuts.map((cut) => ({ ...cut, member: cut.gateway || member })));
  const key = ({ tenant, dialId }: PlaneCut) => JSON.stringify([tenant, dialId]);
  const seen = all.filter(({ hold }) => hold === '');
  const told = new Map(all.filter(({ hold }) => hold !== '').map((cut) => [key(cut), cut]));
  for (const cut of seen) told.delete(key(cut));
  return [...seen, ...told.values()].sort((a, b) => b.atMs - a.atMs);
}

/** Cuts of one cause. */
interface CutGroup {
  readonly by: string;
  /** What ended or failed: `agent agent-7`, or the name of the gateway or hold that cut. */
  readonly what: string;
  readonly tenant: string;
  /** The `isthmus hold` on whose word this stands. Empty if gateways saw it. */
  readonly hold: string;
  readonly reason: string;
  readonly tunnels: number;
  readonly firstMs: number;
  readonly lastMs: number;
}

type Causes = Pick<PlaneCut, 'by' | 'reason' | 'tenant' | 'hold' | 'agentId' | 'member' | 'atMs'>;

/** Groups what was cut for the same reason by the same part of the plane, of one tenant. The last first. */
export function groupsOfCuts(cuts: readonly Causes[]): CutGroup[] {
  const groups = new Map<string, CutGroup>();
  for (const { by, reason, tenant, hold, agentId, member, atMs } of cuts) {
    const what = by === 'agent' || by === 'path' ? `agent ${agentId}` : by === 'hold' && hold !== '' ? hold : member;
    const key = JSON.stringify([by, what, tenant, hold, reason]);
    const { tunnels = 0, firstMs = atMs, lastMs = atMs } = groups.get(key) ?? {};
    const times = { firstMs: Math.min(firstMs, atMs), lastMs: Math.max(lastMs, atMs) };
    groups.set(key, { by, what, tenant, hold, reason, tunnels: tunnels + 1, ...times });
  }
  return [...groups.values()].sort((a, b) => b.lastMs - a.lastMs);
}
