import type { adminApi } from '@isthmus/proto/admin';
import { inWords } from '@isthmus/tunnel';
import { ISTHMUS } from '../defaults.ts';
import { type CredentialOptions, readCredentials } from '../kubeconfig.ts';
import { EXIT, Failure, usage } from '../output.ts';
import { type AdminTls, Asker } from './asker.ts';
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
  [/EAI_AGAIN/, 'no resolver answers here: the name may be right'],
  [/ENOTFOUND|Name resolution failed/, 'the name does not resolve here'],
  [/EHOSTUNREACH|ENETUNREACH|ETIMEDOUT/, 'no route to it from here: run isthmus inside its network'],
  [/server's certificate .* not a trusted authority here/, 'its certificate is not from a CA in --ca'],
  [/server's certificate .* does not name/, 'its certificate is for another name'],
  [
    /certificate required|bad certificate|unknown ca|handshake failure|client certificate (of|was)|no client certificate|requires a client certificate/,
    'it requires a certificate from a CA that it trusts: --cert and --key',
  ],
  [/^it uses TLS$/, 'give --ca, --cert and --key'],
  [/wrong version number|EPROTO|packet length too long/, 'it does not use TLS: leave out --ca'],
  [
    /ECONNRESET|Connection dropped|Failed to connect|socket hang up|Protocol error/,
    'it closed the connection: if it uses TLS, give --ca, --cert and --key',
  ],
];

/** Describes a failed call in one line, with what to check. */
export function reasonOf(error: unknown, timeoutMs: number): string {
  const details = (error as { details?: unknown }).details;
  const message = error instanceof Error ? error.message : String(error);
  const text = typeof details === 'string' && details !== '' ? details : message;
  if (isExpired(error, text)) return `no answer within ${timeoutMs / 1000} s: it hangs, or the network drops packets`;
  if (/UNIMPLEMENTED/.test(message) && /unknown method|does not implement/i.test(text)) {
    return 'it does not know this request: it runs an older version';
  }
  const told = inWords(text).replaceAll(/\s+/g, ' ');
  const hint = HINTS.find(([pattern]) => pattern.test(text))?.[1];
  if (told === '' || told === 'undefined') return 'no connection';
  return hint === undefined ? told : `${told} (${hint})`;
}

/** Whether a member finds fault with the request itself. Every other member would, too. */
export function isInvalid(error: unknown): boolean {
  return /INVALID_ARGUMENT/.test(String(error));
}

function isExpired(error: unknown, text: string): boolean {
  const name = (error as Error | undefined)?.name;
  return name === 'AbortError' || name === 'TimeoutError' || /DEADLINE_EXCEEDED|Deadline exceeded/i.test(text);
}

interface PlaneOptions {
  readonly addresses: readonly string[];
  readonly tls?: AdminTls | undefined;
  /** How long each member may take per answer, in milliseconds. */
  readonly timeoutMs: number;
  /** Aborts everything that is still waiting. */
  readonly signal: AbortSignal;
}

type Question<T> = (admin: adminApi.AdminClient, signal: AbortSignal, member: Member) => Promise<T>;

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
  #lost: readonly Unanswered[] = [];

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

  /** Asks again who is in the plane, at all addresses given at first. The first that answers answers for all. */
  async meet(): Promise<void> {
    const greetings = await Promise.all(this.#askers.map((asker) => this.#greet(asker)));
    const met = greetings.filter((greeting) => 'status' in greeting);
    const lost = greetings.filter((greeting) => 'reason' in greeting);
    const [first] = met;
    if (!first) throw new Failure(EXIT.unasked, nobody(lost));
    this.#through = this.#askers.find(({ address }) => address === first.address) as Asker;
    this.#members = membersOf(met);
    this.#lost = [...lost, ...blindness(met)];
  }

  /** Asks all members, or those with one of these roles. */
  ask<T>(question: Question<T>, ...roles: RoleName[]): Promise<Answers<T>> {
    const wanted = ({ roles: own }: Member) =>
      roles.length === 0 || own.length === 0 || own.some((role) => roles.includes(role));
    return this.askThese(this.members.filter(wanted), question);
  }

  /** @throws Failure if the request itself is at fault, and nobody took it */
  async askThese<T>(members: readonly Member[], question: Question<T>): Promise<Answers<T>> {
    let misused: Failure | undefined;
    const checked: Question<T> = (...asked) =>
      question(...asked).catch((error) => {
        if (isInvalid(error)) misused = usage(this.reason(error));
        throw error;
      });
    const all = await Promise.all(members.map((member) => this.#askOne(member, checked)));
    const answers = all.filter((answer) => 'value' in answer);
    if (misused && answers.length === 0) throw misused;
    const failed = all.filter((answer) => 'reason' in answer);
    return { answers, unanswered: [...this.#lost, ...failed] };
  }

  /** Asks an agent, through its hub. @returns undefined if it does not answer: it is away, or a Go agent */
  async askAgent<T>(tenant: string, id: string, question: Question<T>): Promise<T | undefined> {
    const { timeoutMs } = this.#options;
    const admin = this.#through.client({ agent: { tenant, id } }, timeoutMs);
    const member = { id, address: '', roles: ['agent'], hubId: '', version: '', zone: '' } as const;
    return question(admin, this.#deadline(), member).catch(() => undefined);
  }

  /** Returns a client for a member's calls that take long, such as streams. */
  client({ id }: Member): adminApi.AdminClient {
    return this.#through.client({ member: id }, ISTHMUS.longestCallMs);
  }

  reason(error: unknown): string {
    return reasonOf(error, this.#options.timeoutMs);
  }

  [Symbol.dispose](): void {
    for (const asker of this.#askers) asker[Symbol.dispose]();
  }

  async #askOne<T>(member: Member, question: Question<T>): Promise<Answer<T> | Unanswered> {
    const { id, address } = member;
    const admin = this.#through.client({ member: id }, this.#options.timeoutMs);
    try {
      return { member, value: await question(admin, this.#deadline(), member) };
    } catch (error) {
      return { member: id, address, reason: this.reason(error) };
    }
  }

  async #greet(asker: Asker): Promise<Greeting | Unanswered> {
    const signal = this.#deadline();
    const { address } = asker;
    try {
      const admin = asker.client({}, this.#options.timeoutMs);
      const [status, list] = await Promise.all([admin.getStatus({}, { signal }), admin.listMembers({}, { signal })]);
      return { address, status, list };
    } catch (error) {
      return { member: address, address, reason: this.reason(error) };
    }
  }

  /** The member that is asked has its own deadline for each, and needs a moment to say so. */
  #deadline(): AbortSignal {
    const { timeoutMs, signal } = this.#options;
    return AbortSignal.any([AbortSignal.timeout(timeoutMs + ISTHMUS.mergeMs), signal]);
  }
}

function nobody(lost: readonly Unanswered[]): string {
  const lines = lost.map(({ address, reason }) => `${address}: ${reason}`);
  return `no member answers: ${lines.join('; ')}. Name the admin port of a gateway or hub with --address`;
}

/** Returns the member with that id. @throws Failure that names the known ones */
export function memberOf(plane: Plane, id: string, role?: RoleName): Member {
  const candidates = plane.members.filter(({ roles }) => role === undefined || roles.includes(role));
  const found = candidates.find((member) => member.id === id || member.hubId === id || member.address === id);
  if (found) return found;
  const known = candidates.map((member) => (role === 'hub' && member.hubId) || member.id).join(', ');
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
