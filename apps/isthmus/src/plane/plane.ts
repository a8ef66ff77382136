import type { AdminClientTls, AdminConnection } from '@isthmus/admin/client';
import type { adminApi } from '@isthmus/proto/admin';
import { inWords } from '@isthmus/tunnel';
import { type CredentialOptions, readCredentials } from '../kubeconfig.ts';
import { EXIT, Failure, usage } from '../output.ts';
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
  [/ENOTFOUND|EAI_AGAIN|Name resolution failed/, 'the name does not resolve here'],
  [/EHOSTUNREACH|ENETUNREACH|ETIMEDOUT/, 'no route to it from here: run isthmus inside its network'],
  [/server's certificate .* not a trusted authority here/, 'its certificate is not from a CA in --ca'],
  [/server's certificate .* does not name/, 'its certificate is for another name'],
  [
    /certificate required|bad certificate|unknown ca|handshake failure|client certificate (of|was)|no client certificate|requires a client certificate/,
    'it requires a certificate from a CA that it trusts: --cert and --key',
  ],
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
  readonly tls?: AdminClientTls | undefined;
  /** How long each member may take per answer, in milliseconds. */
  readonly timeoutMs: number;
  /** Aborts everything that is still waiting. */
  readonly signal: AbortSignal;
}

type AdminDial = (address: string, tls?: AdminClientTls) => AdminConnection;

type Question<T> = (admin: adminApi.AdminClient, signal: AbortSignal, member: Member) => Promise<T>;

/**
 * The members of a plane, as one of them lists them. They are asked in parallel, each with a deadline. A member that does not answer is
 * reported, and delays no other.
 */
export class Plane implements Disposable {
  readonly #options: PlaneOptions;
  readonly #dial: AdminDial;
  readonly #connections = new Map<string, AdminConnection>();
  #members = new Map<string, Member>();
  #lost: readonly Unanswered[] = [];

  private constructor(options: PlaneOptions, dial: AdminDial) {
    this.#options = options;
    this.#dial = dial;
  }

  /** @throws Failure if nobody answers at the addresses */
  static async meet(options: PlaneOptions): Promise<Plane> {
    // Loading gRPC takes longer than all the rest, and a command that asks nobody does without it.
    const { adminClient } = await import('@isthmus/admin/client');
    const plane = new Plane(options, adminClient);
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

  /**
   * Asks again who is in the plane. Asks the addresses given at first and all members known by now, so that the plane is not lost with
   * the replica that listed it.
   */
  async meet(): Promise<void> {
    const { addresses } = this.#options;
    const known = this.members.map(({ address }) => address);
    const asked = [...new Set(known.length === 0 ? addresses : [...addresses, ...known])];
    const greetings = await Promise.all(asked.map((address) => this.#greet(address)));
    const met = greetings.filter((greeting) => 'status' in greeting);
    const lost = greetings.filter((greeting) => 'reason' in greeting);
    if (met.length === 0) throw new Failure(EXIT.unasked, nobody(lost));
    this.#members = membersOf(met);
    const found = new Set(this.members.map(({ address }) => address));
    // A given address that the others also list is reported under the member's name if it fails when asked.
    const unheard = lost.filter(({ address }) => addresses.includes(address) && !found.has(address));
    this.#lost = [...unheard, ...blindness(met)];
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

  /** Returns a client for streams of a member, which have no deadline. */
  client({ address }: Member): adminApi.AdminClient {
    return this.#connect(address).admin;
  }

  reason(error: unknown): string {
    return reasonOf(error, this.#options.timeoutMs);
  }

  [Symbol.dispose](): void {
    for (const connection of this.#connections.values()) connection[Symbol.dispose]();
    this.#connections.clear();
  }

  async #askOne<T>(member: Member, question: Question<T>): Promise<Answer<T> | Unanswered> {
    const { id, address, unreachable } = member;
    if (unreachable !== undefined) return { member: id, address, reason: unreachable };
    try {
      return { member, value: await question(this.client(member), this.#deadline(), member) };
    } catch (error) {
      this.#forget(address);
      return { member: id, address, reason: this.reason(error) };
    }
  }

  async #greet(address: string): Promise<Greeting | Unanswered> {
    const signal = this.#deadline();
    try {
      const { admin } = this.#connect(address);
      const [status, list] = await Promise.all([admin.getStatus({}, { signal }), admin.listMembers({}, { signal })]);
      return { address, status, list };
    } catch (error) {
      this.#forget(address);
      return { member: address, address, reason: this.reason(error) };
    }
  }

  #deadline(): AbortSignal {
    const { timeoutMs, signal } = this.#options;
    return AbortSignal.any([AbortSignal.timeout(timeoutMs), signal]);
  }

  #connect(address: string): AdminConnection {
    const known = this.#connections.get(address);
    if (known) return known;
    const made = this.#dial(address, this.#options.tls);
    this.#connections.set(address, made);
    return made;
  }

  /** A channel that lost its peer waits before it reconnects; a new one does not. */
  #forget(address: string): void {
    this.#connections.get(address)?.[Symbol.dispose]();
    this.#connections.delete(address);
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
export async function readTls(options: CredentialOptions): Promise<AdminClientTls | undefined> {
  if (options.ca === undefined && options.cert !== undefined && options.key !== undefined)
    throw usage('--cert has no effect without --ca, the CA certificates of the admin ports');
  const { ca, cert, key } = await readCredentials(options);
  if (ca === undefined) return undefined;
  return {
    ca: Buffer.from(ca),
    ...(cert !== undefined && key !== undefined && { cert: Buffer.from(cert), key: Buffer.from(key) }),
  };
}
