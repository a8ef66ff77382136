import type { AdminClientTls, AdminConnection } from '@isthmus/admin/client';
import type { adminApi } from '@isthmus/proto/admin';
import { EXIT, Failure, usage } from '../exit.ts';
import { blindness, type Greeting, membersOf } from './greeting.ts';
import type { Answers, Member, RoleName, Unanswered } from './member.ts';
import { isInvalid, reasonOf } from './reason.ts';

export interface PlaneOptions {
  readonly addresses: readonly string[];
  readonly tls?: AdminClientTls | undefined;
  /** How long each member may take per answer, in milliseconds. */
  readonly timeoutMs: number;
  /** Aborts everything that is still waiting. */
  readonly signal: AbortSignal;
}

type AdminDial = (address: string, tls?: AdminClientTls) => AdminConnection;

export type Question<T> = (admin: adminApi.AdminClient, signal: AbortSignal, member: Member) => Promise<T>;

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

  async #askOne<T>(member: Member, question: Question<T>): Promise<{ member: Member; value: T } | Unanswered> {
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
