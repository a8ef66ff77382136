import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { answerTo, httpsAgent, lookupName, type ReadTls, wholeOf } from '@isthmus/runtime';
import { ADMIN_SERVER_NAME, parseDestination } from '@isthmus/tunnel';
import { SYNC } from './defaults.ts';

/** What a plane says of a tenant. */
export interface Connected {
  readonly agents: number;
  readonly sessions: number;
  /** Hubs that have these sessions. */
  readonly hubs: number;
  /** Callers that dialled within five minutes. */
  readonly callers: number;
}

/** What a plane says of all tenants. */
export interface PlaneSays {
  /** When the question was sent, by the steady clock. */
  readonly askedAt: number;
  /** By tenant's file: whoever claims a name that is another's learns nothing of it. */
  readonly connected: ReadonlyMap<string, Connected>;
  /** By tenant's file: what is wrong with it at members, and at which. */
  readonly faults: ReadonlyMap<string, string>;
}

export interface MemberOptions {
  /** `HOST:PORT` of its admin port. */
  readonly address: string;
  /** Reads the files to ask by TLS. Undefined: it is asked without. */
  readonly tls: (() => ReadTls) | undefined;
}

/** A line of the answer of `POST /ask` (docs/OPERATE.md). */
interface Line {
  readonly member: { readonly id: string; readonly roles: readonly string[] };
  readonly answer?: {
    readonly problems?: readonly { readonly file: string; readonly line?: number; readonly message: string }[];
    /** `FILE: ` and why a port that it names is not open. */
    readonly unopened?: readonly string[];
    readonly tenants?: readonly {
      readonly file?: string;
      readonly agents?: number;
      readonly sessions?: number;
      readonly callers?: readonly string[];
    }[];
  };
}

/** Asks one member for the plane. @throws Error if it does not answer */
export async function askMember({ address, tls }: MemberOptions): Promise<PlaneSays> {
  const askedAt = performance.now();
  const { host, port } = parseDestination(address);
  // A question a minute needs no connection that stays.
  const agent = tls ? httpsAgent(tls(), [host, ADMIN_SERVER_NAME]) : new HttpAgent({ lookup: lookupName });
  const body = JSON.stringify({ method: 'ListTenants', timeoutMs: SYNC.memberMs });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  try {
    const sent = (tls ? httpsRequest : httpRequest)({ host, port, path: '/ask', method: 'POST', headers, agent });
    sent.end(body);
    const response = await answerTo(sent, AbortSignal.timeout(2 * SYNC.memberMs));
    const answer = (await wholeOf(response, SYNC.memberBytes)).toString();
    if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}: ${answer.slice(0, 200).trim()}`);
    const lines = answer.split('\n').flatMap((line) => (line === '' ? [] : (JSON.parse(line) as Line)));
    return { askedAt, connected: connectedIn(lines), faults: faultsIn(lines) };
  } finally {
    agent.destroy();
  }
}

/** Puts members' answers together, by tenant's file: gateways know the sessions of all hubs, hubs their own. */
export function connectedIn(lines: readonly Line[]): Map<string, Connected> {
  const found = new Map<string, { -readonly [K in keyof Connected]: Connected[K] }>();
  const gateways = lines.some(({ member }) => member.roles.includes('gateway'));
  if (lines.every(({ answer }) => answer === undefined)) throw new Error('no member answered');
  for (const { member, answer } of lines) {
    const [gateway, hub] = [member.roles.includes('gateway'), member.roles.includes('hub')];
    for (const { file = '', agents = 0, sessions = 0, callers = [] } of answer?.tenants ?? []) {
      const known = found.get(file) ?? { agents: 0, sessions: 0, hubs: 0, callers: 0 };
      if (gateway) {
        known.agents = Math.max(known.agents, agents);
        known.sessions = Math.max(known.sessions, sessions);
        known.callers = Math.max(known.callers, callers.length);
      } else if (!gateways) {
        known.agents += agents;
        known.sessions += sessions;
      }
      if (hub && sessions > 0) known.hubs++;
      found.set(file, known);
    }
  }
  return found;
}

/** What is wrong with tenants' files at members: what only a member can know, as that a port is taken. A problem of an object has no line. */
export function faultsIn(lines: readonly Line[]): Map<string, string> {
  const place = (line = 0) => (line > 0 ? `:${line}` : '');
  const found = lines.flatMap(({ member: { id }, answer: { problems = [], unopened = [] } = {} }) => [
    ...problems.map(({ file, line, message }) => ({ id, file, text: `${file}${place(line)}: ${message}` })),
    ...unopened.map((text) => ({ id, file: text.slice(0, text.indexOf(':')), text })),
  ]);
  const ids = (same: typeof found) => same.map(({ id }) => id).sort();
  const all = (of: typeof found) =>
    [...Map.groupBy(of, ({ text }) => text)].map(([text, same]) => `${text} (at ${ids(same).join(', ')})`);
  const said = (of: typeof found) => all(of).sort().join('; ').slice(0, SYNC.faultCharacters);
  return new Map([...Map.groupBy(found, ({ file }) => file)].map(([file, of]) => [file, said(of)]));
}
