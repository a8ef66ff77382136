import { printable } from '@isthmus/runtime';
import {
  type Ask,
  formatDestination,
  type HeldTunnel,
  type Hold,
  parseDestination,
  type TunnelInfo,
} from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { isHexId, isRecord } from './control.ts';

/** What a gateway asks `isthmus hold`. */
export const HELD = { to: { member: 'hold' }, method: 'held', message: {}, reads: true } as const;

/** Returns what `isthmus hold` answers: who it is, and its tunnels, some in each answer. */
export function heldAnswers(name: string, version: string, tunnels: () => Iterable<TunnelInfo>): Ask {
  return async function* () {
    const all = [...tunnels()].slice(0, TRANSPORT.heldTunnels).map(heldOf);
    for (let at = 0; at === 0 || at < all.length; at += TRANSPORT.heldAtOnce)
      yield { name, version, tunnels: all.slice(at, at + TRANSPORT.heldAtOnce) };
  };
}

function heldOf({ dial, agentId: agent, since, up, down, resumable }: TunnelInfo) {
  const { attached = true, moves = 0, kept = 0 } = resumable ?? {};
  return {
    dial: dial.id,
    destination: formatDestination(dial.destination),
    agent,
    since,
    up,
    down,
    attached,
    moves,
    kept,
  };
}

/** Puts together the answers of one process, as far as they can be read. */
export async function readHeld(answers: AsyncIterable<unknown>): Promise<Pick<Hold, 'name' | 'version' | 'tunnels'>> {
  let [name, version] = ['', ''];
  const tunnels: HeldTunnel[] = [];
  for await (const answer of answers) {
    if (!isRecord(answer)) continue;
    [name, version] = [shortText(answer.name), shortText(answer.version)];
    const more = Array.isArray(answer.tunnels) ? answer.tunnels.flatMap((tunnel) => readTunnel(tunnel) ?? []) : [];
    tunnels.push(...more.slice(0, TRANSPORT.heldTunnels - tunnels.length));
  }
  return { name, version, tunnels };
}

function readTunnel(tunnel: unknown): HeldTunnel | undefined {
  if (!isRecord(tunnel) || typeof tunnel.dial !== 'string' || !isHexId(tunnel.dial)) return undefined;
  const { dial: dialId, destination, agent, attached } = tunnel;
  const [since = 0, up = 0, down = 0, moves = 0, kept = 0] = ['since', 'up', 'down', 'moves', 'kept'].map((name) =>
    countIn(tunnel[name]),
  );
  try {
    const to = parseDestination(shortText(destination));
    return {
      dialId,
      destination: to,
      agentId: shortText(agent),
      since,
      up,
      down,
      attached: attached === true,
      moves,
      kept,
    };
  } catch {
    return undefined;
  }
}

function countIn(value: unknown): number {
  return Number.isSafeInteger(value) && Number(value) > 0 ? Number(value) : 0;
}

function shortText(value: unknown): string {
  return typeof value === 'string' ? printable(value.slice(0, TRANSPORT.reasonCharacters)) : '';
}
