import { adminApi, answerIn } from '@isthmus/proto/admin';
import type { AskedMember } from '@isthmus/proto/ask';
import { inWords } from '@isthmus/tunnel';
import { ISTHMUS } from '../defaults.ts';
import { type CredentialOptions, readCredentials } from '../kubeconfig.ts';
import { EXIT, Failure, silentText, usage } from '../output.ts';
import { type AdminTls, Asker, AskFault, type Question } from './asker.ts';
import {
  type Answer,
  type Answers,
  blindness,
  type Greeting,
  type Member,
  membersOf,
  type RoleName,
  type Unanswered,
} from './member.ts';

/** What to check first, by the error that ended the connection. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [/ENOENT/, 'there is no such socket: does it run, and is this its --admin-uds-name?'],
  [/EACCES/, 'this user may not open the socket: run isthmus as the user of the program, or as root'],
  [/ECONNREFUSED/, 'nothing listens there: does it run, and is this its --admin-port?'],
  [/EAI_AGAIN|EAI_FAIL|ETIMEOUT/, 'no resolver answers here: the name may be right'],
  [/ENOTFOUND/, 'the name does not resolve here'],
  [/EHOSTUNREACH|ENETUNREACH|ETIMEDOUT/, 'no route to it from here: run isthmus inside its network'],
  [/^(?=.*server's certificate )(?=.* not a trusted authority here)/s, 'its certificate is not from a CA in --ca'],
  [/^(?=.*server's certificate )(?=.* does not name)/s, 'its certificate is for another name'],
  [
    /certificate required|bad certificate|unknown ca|handshake failure|client certificate (of|was)|no client certificate|requires a client certificate/,
    'it requires a certificate from a CA that it trusts: --cert and --key',
  ],
  [/^it uses TLS$/, 'give --ca, --cert and --key'],
  [/wrong version number|EPROTO|packet length too long/, 'it does not use TLS: leave out --ca'],
  [/ECONNRESET|socket hang up/, 'it closed the connection: if it uses TLS, give --ca, --cert and --key'],
];

/** Describes a failed call in one line, with what to check. */
export function reasonOf(error: unknown, timeoutMs: number): string {
  const { name, message } = (error instanceof AggregateError ? error.errors[0] : error) as Error;
  if (name === 'AbortError' || name === 'TimeoutError')
    return `no answer within ${timeoutMs / 1000} s: it hangs, or the network drops packets`;
  const told = inWords(message).replaceAll(/\s+/g, ' ');
  const hint = HINTS.find(([pattern]) => pattern.test(message))?.[1];
  return hint === undefined ? told || 'no connection' : `${told} (${hint})`;
}

interface PlaneOptions {
  readonly addresses: readonly string[];
  readonly tls?: AdminTls | undefined;
  /** How long each member may take per answer, in milliseconds. */
  readonly timeoutMs: number;
  /** Aborts everything that is still waiting. */
  readonly signal: AbortSignal;
}

type Client = adminApi.AdminClient;
type Method = keyof Client;

/** What a method is asked. */
type Asked<M extends Method> = Parameters<Client[M]>[0];

/** What a method answers; of a stream, each of its answers. */
type Said<M extends Method> =
  ReturnType<Client[M]> extends Promise<infer T> ? T : ReturnType<Client[M]> extends AsyncIterable<infer T> ? T : never;

/** What a member says, or why it says nothing. */
type Line<M extends Method, By = Member> = { readonly member: By } & (
  | { readonly answer: Said<M>; readonly error?: never }
  | { readonly answer?: never; readonly error: AskFault }
);

interface Whom<M extends Method> {
  /** Default: all, or those with one of the roles. */
  readonly members?: readonly Member[];
  readonly roles?: readonly RoleName[];
  /** How long each may take. Default: `--timeout`. */
  readonly timeoutMs?: number;
  /** Stands for the answer of a member that has nothing of that name, or is too old to know the method. */
  readonly instead?: Said<M>;
}

/**
 * The members of a plane, as one of them lists them. That one asks all others, each with a deadline. A member that does not answer is
 * reported, and delays no other.
 */
export class Plane implements Disposable {
  readonly #options: PlaneOptions;
  readonly #askers: readonly Asker[];
  /** The member that answers for all. */
  #through: Asker;
  #members = new Map<string, Member>();
  #hubs: readonly adminApi.Hub[] = [];
  #lost: readonly Unanswered[] = [];
  /** Members that could not be asked, by id. Until they are met again, nothing waits for them a second time. */
  readonly #silent = new Map<string, Unanswered>();

  private constructor(options: PlaneOptions) {
    this.#options = options;
    this.#askers = options.addresses.map((address) => new Asker(address, options.tls));
    this.#through = this.#askers[0] as Asker;
  }

  /** @throws Failure if nobody answers at the addresses */
  static async meet(options: PlaneOptions): Promise<Plane> {
    const plane = new Plane(options);
    try {
      await plane.meet();
      return plane;
    } catch (error) {
      plane[Symbol.dispose]();
      throw error;
    }
  }

  /** Where it was met, as they were named. */
  get addresses(): readonly string[] {
    return this.#options.addresses;
  }

  get members(): readonly Member[] {
    return [...this.#members.values()];
  }

  /** As the members know them that were met. */
  get hubs(): readonly adminApi.Hub[] {
    return this.#hubs;
  }

  /** Those that have not been asked in vain. */
  get answering(): readonly Member[] {
    return this.members.filter(({ id }) => !this.#silent.has(id));
  }

  /** Asks again who is in the plane, at all addresses given at first. The first that answers answers for all. */
  async meet(): Promise<void> {
    this.#silent.clear();
    const greetings = await Promise.all(this.#askers.map((asker) => this.#greet(asker)));
    const met = greetings.filter((greeting) => 'list' in greeting);
    const lost = greetings.filter((greeting) => 'reason' in greeting);
    const [first] = met;
    if (!first) throw new Failure(EXIT.unasked, nobody(lost));
    this.#through = this.#askers.find(({ address }) => address === first.address) as Asker;
    this.#members = membersOf(met);
    this.#hubs = [...new Map(met.flatMap(({ list }) => list.hubs.map((hub) => [hub.hubId, hub]))).values()];
    this.#lost = [...lost, ...blindness(met)];
  }

  /** Asks members for one answer each. @throws Failure if the request itself is at fault, and nobody took it */
  async ask<M extends Method>(method: M, message: Asked<M>, whom: Whom<M> = {}): Promise<Answers<Said<M>>> {
    const { members = this.#with(whom.roles), timeoutMs = this.#options.timeoutMs, instead } = whom;
    const lines = new Map<Member, Line<M> & { readonly at: number }>();
    let fault: unknown = new Error('it was not asked');
    const asked = members.filter(({ id }) => !this.#silent.has(id));
    try {
      for await (const line of this.lines(method, message, asked, this.#deadline(timeoutMs), timeoutMs))
        lines.set(line.member, { ...line, at: Date.now() });
    } catch (error) {
      fault = error;
    }
    const answers: Answer<Said<M>>[] = [];
    const unanswered = [...this.#lost];
    for (const member of members) {
      const { answer: value, error = fault, at } = lines.get(member) ?? {};
      if (value) answers.push({ member, value, ...(at && { at }) });
      else if (instead && /^(not_found|unimplemented)$/.test(codeOf(error))) answers.push({ member, value: instead });
      else {
        const { id, address } = member;
        const silent = this.#silent.get(id) ?? { member: id, address, reason: reasonOf(error, timeoutMs) };
        unanswered.push(silent);
        if (/^(unavailable)?$/.test(codeOf(error))) this.#silent.set(id, silent);
      }
    }
    // Every member finds the same fault with it.
    const invalid = [fault, ...[...lines.values()].map(({ error }) => error)].find(
      (error) => codeOf(error) === 'invalid_argument',
    );
    if (invalid && answers.length === 0) throw usage(reasonOf(invalid, timeoutMs));
    return { answers, unanswered };
  }

  /** Asks one member. @throws Failure if it does not answer */
  async askOne<M extends Method>(member: Member, method: M, message: Asked<M>, timeoutMs?: number): Promise<Said<M>> {
    const whom = { members: [member], ...(timeoutMs !== undefined && { timeoutMs }) };
    const { answers, unanswered } = await this.ask(method, message, whom);
    if (answers[0]) return answers[0].value;
    throw new Failure(EXIT.unasked, unanswered.slice(-1).map(silentText).join());
  }

  /** Asks an agent, through its hub. @returns undefined if it does not answer: it is away, or a Go agent */
  async askAgent<M extends Method>(
    tenant: string,
    id: string,
    method: M,
    timeoutMs = this.#options.timeoutMs,
  ): Promise<Said<M> | undefined> {
    const first = this.#first(this.#through, method, { agent: { tenant, id } }, timeoutMs);
    return (await first.catch(() => undefined))?.answer;
  }

  /** What the clock says of a member that could not be asked through the others, by its own address; undefined if it does not answer there. */
  async clockAt(address: string, timeoutMs: number): Promise<number | undefined> {
    using asker = new Asker(address, this.#options.tls);
    const late = AbortSignal.timeout(timeoutMs);
    return await asker.clock(AbortSignal.any([late, this.#options.signal])).catch(() => undefined);
  }

  /** Yields what members say, as it comes, until all have ended. @throws if the one that is asked for all fails */
  async *lines<M extends Method>(
    method: M,
    message: Asked<M>,
    members: readonly Member[],
    signal = this.#deadline(),
    timeoutMs = this.#options.timeoutMs,
  ): AsyncIterable<Line<M>> {
    const known = new Map(members.map((member) => [member.id, member]));
    if (known.size === 0) return;
    const most = Math.min(timeoutMs, ISTHMUS.longestCallMs);
    const whom = { message: jsonOf(message), members: [...known.keys()], timeoutMs: most };
    for await (const { member: said, ...told } of linesOf(this.#through, method, whom, signal)) {
      const member = known.get(said.id);
      if (member) yield { member, ...told };
    }
  }

  reason(error: unknown): string {
    return reasonOf(error, this.#options.timeoutMs);
  }

  [Symbol.dispose](): void {
    for (const asker of this.#askers) asker[Symbol.dispose]();
  }

  #with(roles: readonly RoleName[] = []): readonly Member[] {
    return this.members.filter(
      ({ roles: own }) => roles.length === 0 || own.length === 0 || roles.some((role) => own.includes(role)),
    );
  }

  async #greet(asker: Asker): Promise<Greeting | Unanswered> {
    const { address } = asker;
    try {
      const { member: self, answer: list } = await this.#first(asker, 'listMembers', { members: [] });
      return { address, self, list };
    } catch (error) {
      return { member: address, address, reason: this.reason(error) };
    }
  }

  /** What one process says. */
  async #first<M extends Method>(
    asker: Asker,
    method: M,
    whom: Pick<Question, 'members' | 'agent'>,
    timeoutMs = this.#options.timeoutMs,
  ) {
    const question = { message: {}, ...whom, timeoutMs };
    for await (const { member, answer, error } of linesOf(asker, method, question, this.#deadline(timeoutMs))) {
      if (error) throw error;
      return { member, answer };
    }
    throw new Error('the answer is empty');
  }

  /** The member that is asked has its own deadline for each, and needs a moment to say so. */
  #deadline(timeoutMs = this.#options.timeoutMs): AbortSignal {
    return AbortSignal.any([AbortSignal.timeout(timeoutMs + ISTHMUS.mergeMs), this.#options.signal]);
  }
}

/** Yields what processes say, as it comes. An answer that cannot be read is the fault of its process alone. */
async function* linesOf<M extends Method>(
  asker: Asker,
  method: M,
  question: Omit<Question, 'method'>,
  signal: AbortSignal,
): AsyncIterable<Line<M, AskedMember>> {
  const { name } = adminApi.AdminDefinition.methods[method];
  for await (const { member, answer = {}, error } of asker.ask({ method: name, ...question }, signal)) {
    if (error) yield { member, error: new AskFault(error) };
    else yield { member, ...readAs(method, answer) };
  }
}

function readAs<M extends Method>(method: M, answer: object) {
  try {
    return { answer: answerIn(method, answer) as Said<M> };
  } catch (error) {
    return { error: new AskFault({ code: 'internal', message: (error as Error).message }) };
  }
}

function codeOf(error: unknown): string {
  return error instanceof AskFault ? error.code : '';
}

/** In JSON, a message says by the field alone what it is about. */
function jsonOf(message: object): object {
  const fields = Object.entries(message).map(([name, value]) => {
    return value?.$case === undefined ? [name, value] : [value.$case, value.value];
  });
  return Object.fromEntries(fields);
}

function nobody(lost: readonly Unanswered[]): string {
  const lines = lost.map(({ address, reason }) => `${address}: ${reason}`);
  return `no member answers: ${lines.join('; ')}. Name the admin port of a gateway or hub with --address`;
}

/** Returns the member with that id. @throws Failure that names the known ones */
export function memberOf(plane: Plane, id: string, role?: RoleName): Member {
  const candidates = plane.members.filter(({ roles }) => role === undefined || roles.includes(role));
  const found = candidates.find((member) => member.id === id || member.address === id);
  if (found) return found;
  const known = candidates.map((member) => member.id).join(', ');
  throw usage(
    `there is no ${role ?? 'member'} ${JSON.stringify(id)}; there ${known === '' ? 'is none' : `are ${known}`}`,
  );
}

/**
 * One member that is named, or all with this role: first those at the addresses that were named, in that order.
 * @throws Failure where there is none.
 */
export function membersWith(plane: Plane, role: RoleName, id: string | undefined): readonly Member[] {
  if (id !== undefined) return [memberOf(plane, id, role)];
  const found = plane.members.filter(({ roles }) => roles.includes(role));
  const order = [...plane.addresses];
  const place = ({ address }: Member) => (order.includes(address) ? order.indexOf(address) : order.length);
  if (found.length > 0) return found.sort((a, b) => place(a) - place(b));
  const asked = plane.members.map((member) => `${member.id} (${member.roles.join('+')})`).join(', ');
  throw usage(
    `only a ${role} can answer this, and none is known; asked: ${asked}. Name the admin port of one with --address`,
  );
}

/** Reads the files that the options name. Returns undefined without them; admin ports are then asked in plain text. */
export async function readTls(options: CredentialOptions): Promise<AdminTls | undefined> {
  if (options.ca === undefined && options.cert !== undefined && options.key !== undefined)
    throw usage('--cert has no effect without --ca, the CA certificates of the admin ports');
  const { ca, cert, key } = await readCredentials(options);
  if (ca === undefined) return undefined;
  return {
    ca: Buffer.from(ca),
    ...(cert !== undefined && key !== undefined && { cert: Buffer.from(cert), key: Buffer.from(key) }),
  };
}
