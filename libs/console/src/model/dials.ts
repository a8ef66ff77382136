import { DialState } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import type { Dial } from '../rpc.ts';
import { shellWord } from './text.ts';

/** A dial, and the member that reported it. */
export interface SeenDial {
  readonly member: string;
  readonly dial: Dial;
}

/** The dials of an hour of watching: the newest, each once, whatever their number. */
export class DialFeed {
  /** By member, role and id, in the order of their start here. */
  readonly #dials = new Map<string, SeenDial>();
  /** Events that members have dropped because the page read too slowly. */
  lost = 0;
  /** Goes up with each change. */
  version = 0;

  get size(): number {
    return this.#dials.size;
  }

  /** Takes a dial's start or end. Its end replaces its start. */
  take(member: string, dial: Dial): void {
    const key = `${member}\0${dial.role}\0${dial.dialId}`;
    this.#dials.set(key, { member, dial });
    this.version++;
    for (const oldest of this.#dials.keys()) {
      if (this.#dials.size <= CONSOLE.keptDials) return;
      this.#dials.delete(oldest);
    }
  }

  /** A member dropped events: ends of dials that seem to run may be among them. */
  skip(member: string, lost: number): void {
    this.lost += lost;
    for (const [key, seen] of this.#dials) if (seen.member === member && isRunning(seen)) this.#dials.delete(key);
    this.version++;
  }

  clear(): void {
    this.#dials.clear();
    this.lost = 0;
    this.version++;
  }

  /** The newest first, by their start: each member tells its earlier dials at once. */
  list(): SeenDial[] {
    return [...this.#dials.values()].reverse().sort((a, b) => b.dial.startedMs - a.dial.startedMs);
  }
}

export function isRunning({ dial }: SeenDial): boolean {
  return dial.state === DialState.DIAL_STATE_RUNNING;
}

export function isEstablished({ dial }: SeenDial): boolean {
  return dial.state === DialState.DIAL_STATE_ESTABLISHED;
}

/** What the operator looks for among the dials. */
export type Order = 'newest' | 'slowest' | 'failing' | 'parked';

export const ORDERS: readonly Order[] = ['newest', 'slowest', 'failing', 'parked'];

export function hasFailed({ dial }: SeenDial): boolean {
  return dial.state === DialState.DIAL_STATE_FAILED;
}

/** How long a dial took, or has taken so far. */
export function tookMs({ dial }: SeenDial, now: number): number {
  return dial.ms ?? Math.max(0, now - dial.startedMs);
}

/** Waits for a session, or has waited: a dial that runs and has no attempt yet may wait. */
export function isParked(seen: SeenDial): boolean {
  return seen.dial.parkedMs > 0 || (isRunning(seen) && seen.dial.attempts.length === 0);
}

/** @param agent part of the agent's id */
export function ordered(dials: readonly SeenDial[], order: Order, agent: string, now: number): SeenDial[] {
  const wanted = agent.trim().toLowerCase();
  const found = dials.filter(
    (seen) =>
      (wanted === '' || seen.dial.agentId.toLowerCase().includes(wanted)) &&
      (order !== 'failing' || hasFailed(seen)) &&
      (order !== 'parked' || isParked(seen)),
  );
  return order === 'slowest' ? found.sort((a, b) => tookMs(b, now) - tookMs(a, now)) : found;
}

/** The dials through one agent. Times in milliseconds. */
export interface AgentDials {
  readonly agent: string;
  readonly tenant: string;
  readonly dials: number;
  readonly failed: number;
  /** Half of them took no longer. */
  readonly halfMs: number;
  readonly slowestMs: number;
}

/** Groups dials that have ended by the agent that they went through: the slowest agent first. */
export function byAgent(dials: readonly SeenDial[]): AgentDials[] {
  const through = dials.filter((seen) => seen.dial.agentId !== '' && seen.dial.ms !== undefined);
  const groups = Map.groupBy(through, ({ dial }) => `${dial.tenant}\0${dial.agentId}`);
  const agents = [...groups.values()].map((own): AgentDials => {
    const [{ dial }] = own as [SeenDial];
    const times = own.map((seen) => seen.dial.ms ?? 0).sort((a, b) => a - b);
    return {
      agent: dial.agentId,
      tenant: dial.tenant,
      dials: own.length,
      failed: own.filter(hasFailed).length,
      halfMs: times[Math.ceil(times.length / 2) - 1] ?? 0,
      slowestMs: times.at(-1) ?? 0,
    };
  });
  return agents.sort((a, b) => b.halfMs - a.halfMs);
}

/** Who is asked: the admin port, and the gateway of the plane. */
interface Place {
  readonly address: string;
  readonly gateway: string;
}

/** Returns the command line that repeats a dial through the same agent, or undefined if its names cannot be pasted safely. */
export function dialLine(
  dial: Pick<Dial, 'destination' | 'tenant' | 'agentId'>,
  { address, gateway }: Place,
): string | undefined {
  const { destination, tenant, agentId } = dial;
  const words = [
    'isthmus',
    'dial',
    // An `=` keeps a name that begins with a dash from being read as an option.
    ...(agentId === '' ? [] : [`--agent=${agentId}`]),
    ...(tenant === '' || tenant === 'default' ? [] : [`--tenant=${tenant}`]),
    ...(gateway === '' ? [] : [`--gateway=${gateway}`]),
    `--address=${address}`,
    ...(destination.startsWith('-') ? ['--'] : []),
    destination,
  ].map(shellWord);
  return words.includes(undefined) ? undefined : words.join(' ');
}

/** Returns the address of a dial's trace, or undefined without a template or a trace. */
export function traceLink(template: string, traceId: string): string | undefined {
  return template !== '' && /^[0-9a-f]{32}$/.test(traceId) ? template.replaceAll('{trace_id}', traceId) : undefined;
}
