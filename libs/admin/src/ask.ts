import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { AdminJson, adminApi, answerIn, namesOf } from '@isthmus/proto/admin';
import type { AskError, AskedMember, AskLine } from '@isthmus/proto/ask';
import { LruMap, onceClosed, printable, wholeOf, within } from '@isthmus/runtime';
import { send, VERSION } from '@isthmus/service';
import { type Ask, inWords, NotAuthorised, type Question } from '@isthmus/tunnel';
import { ServerError, Status } from 'nice-grpc';
import type { Method } from './access/guard.ts';
import { faultOfVisitor, type Visitor } from './access/visitor.ts';
import type { AdminBackend } from './backend.ts';
import { aliveOf } from './calls/members.ts';
import { absent, denied, exhausted, internal, invalid } from './calls/messages.ts';
import { SAFE_HEADERS } from './console/page.ts';
import { ADMIN } from './defaults.ts';
import { answering } from './service.ts';

const ROLES = namesOf(adminApi.Role, 'ROLE');

/** What one process said: one response, or why there is none. */
type Told = Omit<AskLine, 'member'>;

/** See `answersOf`. */
export function answered(backend: AdminBackend, scope: 'all' | 'reads'): Ask {
  const json = new AdminJson();
  return async function* ({ method: name, message, operator }, signal): AsyncIterable<Told> {
    try {
      const method = methodNamed(String(name));
      if (scope === 'reads' && !changesNothing(method)) {
        throw denied(`${name} needs the agent's own admin port: its hub may only read`);
      }
      const { responseType } = adminApi.AdminDefinition.methods[method];
      const limits = isStream(method) ? [signal] : [signal, AbortSignal.timeout(ADMIN.callMs)];
      const asked = requestOf(json, method, message);
      const answers = answering(visitorOf(operator), backend)(method, asked, AbortSignal.any(limits));
      for await (const answer of answers) yield { answer: responseType.fromPartial(answer) };
    } catch (error) {
      yield { error: faultOf(error).fault };
    }
  };
}

/** Reads a method's request from JSON. @throws ServerError that names the field that is wrong */
function requestOf(json: AdminJson, method: Method, message: unknown): object {
  try {
    return json.request(method, message);
  } catch (error) {
    throw invalid((error as Error).message);
  }
}

/** Who asks, as another member says. */
function visitorOf(operator: Question['operator']): Visitor {
  const shown = (text: string) => printable(String(text).slice(0, ADMIN.shownId));
  const [identity, remote] = [shown(operator.identity), shown(operator.remote)];
  const tenant = operator.tenant === undefined ? undefined : String(operator.tenant);
  if (tenant === undefined) return { operator: { identity, remote } };
  const principal = { tenant, role: 'operator', name: identity, rule: 'asked through a member' } as const;
  return { operator: { identity, remote, tenant }, principal };
}

/** A process without links answers for itself alone. */
function alone(backend: AdminBackend): Ask {
  const { memberId, agentId } = backend.identity;
  const local = answered(backend, 'all');
  return (question, signal) => {
    const { to } = question;
    if ('member' in to && to.member === (memberId || agentId)) return local(question, signal);
    throw new Error(`${memberId || agentId} has no link to ${printable('member' in to ? to.member : to.agent)}`);
  };
}

/** A request of `POST /ask`. */
interface Asked {
  readonly method: string;
  readonly message: unknown;
  /** Ids; an empty list is this process. Default: all, or those with one of `roles`. */
  readonly members: readonly string[] | undefined;
  readonly roles: readonly string[] | undefined;
  readonly agent: { readonly tenant: string; readonly id: string } | undefined;
  /** How long each member may take, in milliseconds. */
  readonly timeoutMs: number;
}

/**
 * `POST /ask`: asks members of the plane, or an agent, over the links that exist, and merges their answers: a line of JSON for each, with
 * who says it. Who does not answer has a line with the reason.
 */
export class AskPage {
  readonly #backend: AdminBackend;
  readonly #paces: Pick<Paces, 'turn'>;
  readonly #ask: Ask;
  /** Open questions by the tenant of who asks. */
  readonly #open = new Map<string, number>();

  /** @param paces of tenants' operators */
  constructor(backend: AdminBackend, paces: Pick<Paces, 'turn'> = new Paces()) {
    this.#backend = backend;
    this.#paces = paces;
    this.#ask = backend.ask ?? alone(backend);
  }

  async serve(request: IncomingMessage, response: ServerResponse, visitor: Visitor): Promise<void> {
    const gone = new AbortController();
    onceClosed(response, () => gone.abort());
    const { tenant = '' } = visitor.operator;
    const open = this.#open.get(tenant) ?? 0;
    this.#open.set(tenant, open + 1);
    try {
      if (open >= ADMIN.asksOfTenant) throw exhausted(`${ADMIN.asksOfTenant} questions are open: end some first`);
      const sent = sentBytes(request);
      if (visitor.operator.tenant !== undefined) await this.#turn(tenant, sent, gone.signal);
      const asked = await readAsked(request, visitor);
      this.#admit(visitor, asked.method);
      await sendLines(response, this.#lines(asked, sent, visitor, gone.signal), gone.signal);
    } catch (error) {
      if (gone.signal.aborted) return;
      const { status, fault } = faultOf(error);
      const text = `${JSON.stringify(fault)}\n`;
      if (response.headersSent) response.end(text);
      else
        await send(response, { status, body: text, headers: { ...SAFE_HEADERS, 'content-type': 'application/json' } });
    } finally {
      const left = (this.#open.get(tenant) ?? 1) - 1;
      if (left > 0) this.#open.set(tenant, left);
      else this.#open.delete(tenant);
    }
  }

  async #turn(tenant: string, bytes: number, signal: AbortSignal): Promise<void> {
    await sleep(this.#paces.turn(tenant, bytes), undefined, { signal });
  }

  /** @throws ServerError to who may ask nothing */
  #admit(visitor: Visitor, call: string): void {
    const fault = faultOfVisitor(visitor, this.#backend.tenants);
    if (!fault) return;
    this.#backend.operated?.({ operator: visitor.operator, call, outcome: 'refused', text: fault.message });
    throw denied(fault.message);
  }

  /** @param sent bytes, which have had their turn */
  async *#lines(asked: Asked, sent: number, { operator }: Visitor, signal: AbortSignal): AsyncIterable<AskLine> {
    const { method, message } = asked;
    const whom = await this.#whom(asked);
    const more = Math.max(0, whom.length * ADMIN.askBytes - sent);
    if (operator.tenant !== undefined) await this.#turn(operator.tenant, more, signal);
    const answers = whom.map(({ member, to }) =>
      this.#told({ to, method, message, operator, reads: changesNothing(methodNamed(method)) }, asked, signal, member),
    );
    yield* merged(answers);
  }

  async #whom({ members, roles, agent }: Asked): Promise<{ member: AskedMember; to: Question['to'] }[]> {
    if (agent) {
      const member = { id: agent.id, roles: ['agent'], address: '', version: '', zone: '' };
      return [{ member, to: { tenant: agent.tenant, agent: agent.id } }];
    }
    const known = await this.#members();
    if (members?.length === 0) return known.slice(0, 1).map((member) => ({ member, to: { member: member.id } }));
    const found = members
      ? [...new Set(members)].map(
          (id) => known.find((each) => each.id === id) ?? { id, roles: [], address: '', version: '', zone: '' },
        )
      : known.filter((each) => !roles || each.roles.some((role) => roles.includes(role)));
    return found.map((member) => ({ member, to: { member: member.id } }));
  }

  /** This process, those of the registry's list, and hubs that are linked while the registry does not answer. */
  async #members(): Promise<AskedMember[]> {
    const { identity, plane } = this.#backend;
    const own = identity.memberId || identity.agentId;
    const { zone, roles } = identity;
    const self = { id: own, roles, address: '', version: VERSION, zone };
    if (!plane) return [self];
    // The registry's answer, or what it last said.
    await within(plane.members(), ADMIN.membersMs).catch(() => {});
    const found = new Map<string, AskedMember>([[own, self]]);
    for (const { memberId: id, adminAddress: address, roles, version, zone } of aliveOf(plane.lastMembers(), own))
      found.set(id, { id, roles, address, version, zone });
    for (const { hubId: id, zone: its } of plane.hubs())
      if (!found.has(id)) found.set(id, { id, roles: ['hub'], address: '', version: '', zone: its });
    return [...found.values()];
  }

  async *#told(
    question: Question,
    { method, timeoutMs }: Asked,
    gone: AbortSignal,
    member: AskedMember,
  ): AsyncIterable<AskLine> {
    const called = methodNamed(method);
    const limits = isStream(called) ? [gone] : [gone, AbortSignal.timeout(timeoutMs)];
    try {
      for await (const told of this.#ask(question, AbortSignal.any(limits))) {
        yield { ...toldIn(told, called), member };
        // While the line was written, the time may have gone.
        if (!isStream(called)) return;
      }
      if (!isStream(called)) throw new Error('it ended its answer before it had said anything');
    } catch (error) {
      const late = (error as Error).name === 'TimeoutError';
      // The members that were asked in its place say only that they have no link either.
      const lost = question.operator.tenant === undefined && this.#backend.plane?.failureOf(member.id);
      const text = late
        ? `no answer within ${timeoutMs / 1000} s: it hangs, or the network drops packets`
        : inWords(lost ? lost.error : error);
      yield { member, error: { code: 'unavailable', message: text } };
    }
  }
}

/** Yields what comes from any of them, as it comes. None of them throws. A race of promises would keep what all have yielded. */
async function* merged<T>(all: readonly AsyncIterable<T>[]): AsyncIterable<T> {
  const open = new Set(all.map((each) => each[Symbol.asyncIterator]()));
  const came: { readonly iterator: AsyncIterator<T>; readonly result: IteratorResult<T> }[] = [];
  let wake = () => {};
  const pull = async (iterator: AsyncIterator<T>) => {
    came.push({ iterator, result: await iterator.next() });
    wake();
  };
  try {
    for (const iterator of open) void pull(iterator);
    while (open.size > 0) {
      const one = came.shift();
      if (!one) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      } else if (one.result.done) open.delete(one.iterator);
      else {
        yield one.result.value;
        void pull(one.iterator);
      }
    }
  } finally {
    for (const iterator of open) void iterator.return?.();
  }
}

/** What a process answers is a claim: who it is, this member knows. Only the two fields count, and an answer has its method's types. */
function toldIn(said: unknown, method: Method): Told {
  const { answer, error } = (typeof said === 'object' && said ? said : {}) as Record<string, unknown>;
  if (typeof error === 'object' && error) {
    const { code, message } = error as Record<string, unknown>;
    return { error: { code: printable(String(code)), message: inWords(String(message)) } };
  }
  return { answer: answerIn(method, answer) };
}

/** @throws ServerError that names what is wrong */
async function readAsked(request: IncomingMessage, { principal }: Visitor): Promise<Asked> {
  // Another type would let a form of any page ask.
  const type = request.headers['content-type']?.split(';')[0]?.trim().toLowerCase();
  if (request.method !== 'POST' || type !== 'application/json')
    throw invalid('ask with POST and content-type application/json');
  const text = await readBody(request);
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    throw invalid('the request is no JSON');
  }
  if (typeof said !== 'object' || said === null) throw invalid('the request is no object');
  const { method, message = {}, members, roles, agent, timeoutMs = ADMIN.askMs } = said as Record<string, unknown>;
  if (typeof method !== 'string') throw invalid('method: a name of the admin RPC, such as GetStatus');
  methodNamed(method);
  if (members !== undefined && !isTexts(members)) throw invalid(`members: a list of at most ${ADMIN.membersAsked} ids`);
  if (roles !== undefined && !isTexts(roles)) throw invalid(`roles: a list of ${Object.values(ROLES).join(', ')}`);
  if (typeof timeoutMs !== 'number' || !(timeoutMs > 0) || timeoutMs > ADMIN.callMs)
    throw invalid(`timeoutMs: a number above 0, at most ${ADMIN.callMs}`);
  return { method, message, members, roles, agent: agentIn(agent, principal?.tenant), timeoutMs: Math.ceil(timeoutMs) };
}

/** @param own the tenant of an operator of one tenant alone */
function agentIn(agent: unknown, own: string | undefined): Asked['agent'] {
  if (agent === undefined) return undefined;
  const { tenant = own ?? 'default', id } = (typeof agent === 'object' && agent ? agent : {}) as Record<
    string,
    unknown
  >;
  if (typeof tenant !== 'string' || typeof id !== 'string') throw invalid('agent: {"tenant": ..., "id": ...}');
  if (own !== undefined && tenant !== own) {
    const { message } = new NotAuthorised(
      `tenant ${tenant} is not yours: an operator of it, or of the plane, may ask this`,
    );
    throw denied(message);
  }
  return { tenant, id };
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length <= ADMIN.membersAsked && value.every((each) => typeof each === 'string');
}

/** How much a request sends, or may send if it does not say. */
function sentBytes({ headers }: IncomingMessage): number {
  return Math.min(Number(headers['content-length'] ?? ADMIN.bodyBytes), ADMIN.bodyBytes);
}

/** Reads a request's body as text. @throws ServerError */
async function readBody(request: IncomingMessage): Promise<string> {
  const late = setTimeout(
    () => request.destroy(new Error(`no whole request within ${ADMIN.bodyMs / 1000} s`)),
    ADMIN.bodyMs,
  );
  try {
    const tooLong = () => exhausted(`the request is longer than ${ADMIN.bodyBytes} bytes`);
    return new TextDecoder('utf-8', { fatal: true }).decode(await wholeOf(request, ADMIN.bodyBytes, tooLong));
  } catch (error) {
    throw error instanceof TypeError ? invalid('the request is no UTF-8') : error;
  } finally {
    clearTimeout(late);
  }
}

/** Sends a line of JSON for each answer, and empty ones as a sign of life: nobody may be dialling, but the reader wants to know that it is connected. */
async function sendLines(response: ServerResponse, answers: AsyncIterable<object>, signal: AbortSignal): Promise<void> {
  const begin = () => {
    if (!response.headersSent) response.writeHead(200, { ...SAFE_HEADERS, 'content-type': 'application/x-ndjson' });
  };
  const beat = () => {
    begin();
    if (!response.writableNeedDrain) response.write('\n');
  };
  const heartbeat = setInterval(beat, ADMIN.heartbeatMs);
  const first = setImmediate(beat);
  try {
    for await (const answer of answers) {
      begin();
      if (!response.write(`${JSON.stringify(answer)}\n`)) await once(response, 'drain', { signal });
    }
    begin();
    response.end();
  } finally {
    clearImmediate(first);
    clearInterval(heartbeat);
  }
}

/** By the names and statuses of https://connectrpc.com/docs/protocol. */
const CODES: { readonly [code: number]: readonly [name: string, status: number] } = {
  [Status.INVALID_ARGUMENT]: ['invalid_argument', 400],
  [Status.NOT_FOUND]: ['not_found', 404],
  [Status.PERMISSION_DENIED]: ['permission_denied', 403],
  [Status.RESOURCE_EXHAUSTED]: ['resource_exhausted', 429],
  [Status.UNIMPLEMENTED]: ['unimplemented', 501],
  [Status.UNAVAILABLE]: ['unavailable', 503],
};

/** Says why a call failed, and the status of HTTP for it. */
function faultOf(error: unknown): { readonly status: number; readonly fault: AskError } {
  const known = error instanceof ServerError ? error : internal((error as Error).message);
  const [code, status] = CODES[known.code] ?? ['internal', 500];
  return { status, fault: { code, message: known.details } };
}

/** @param name `GetStatus` @throws ServerError */
function methodNamed(name: string): Method {
  const found = Object.entries(adminApi.AdminDefinition.methods).find(([, each]) => each.name === name);
  if (found) return found[0] as Method;
  throw absent(`the admin RPC has no method ${name.slice(0, 100)}`);
}

/** As Connect's protocol has it, only such methods answer a GET. */
function changesNothing(method: Method): boolean {
  const { options } = adminApi.AdminDefinition.methods[method];
  return 'idempotencyLevel' in options && options.idempotencyLevel === 'NO_SIDE_EFFECTS';
}

/** Whether it answers until the client is gone. */
function isStream(method: Method): boolean {
  return adminApi.AdminDefinition.methods[method].responseStream;
}

/** How fast each tenant's operators may ask, on all their connections. Calls are small, and answers as fast as ever. */
class Paces {
  /** When the next byte of a tenant may be read, in milliseconds of `performance.now()`. Before now: a burst is left. */
  readonly #due = new LruMap<string, number>(ADMIN.pacedTenants);

  /** Reserves a tenant's next turn, for so many bytes. Returns after how many milliseconds it begins. */
  turn(tenant: string, bytes: number): number {
    const now = performance.now();
    const from = Math.max(this.#due.get(tenant) ?? 0, now - ADMIN.tenantBurstMs);
    const due = from + (1000 * bytes) / ADMIN.tenantBytesPerSecond;
    this.#due.set(tenant, due);
    return Math.max(0, due - now);
  }
}
