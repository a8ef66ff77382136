import type { PlaneEventMap } from './events.ts';

/** How long after its announcement what an operator's look at a port brings about is known as that, in milliseconds. */
const PROBE_LASTS = 30_000;

/** Probes at once: an operator looks at two ports of a hub. */
const MAX_PROBES = 100;

type Heard<Name extends keyof PlaneEventMap> = (...args: PlaneEventMap[Name]) => void;

/**
 * Listeners that pass on what is refused, but for the probes of `isthmus check`, which says where it comes from before it shakes
 * hands: it proves nothing of itself at the port, so it is refused there, and nobody should be called for it.
 */
export function unlessProbed(told: Heard<'refused'>): {
  readonly probe: Heard<'probe'>;
  readonly refused: Heard<'refused'>;
} {
  const expected = new Map<string, number>();
  return {
    probe(remote) {
      const [oldest] = expected.keys();
      if (expected.size >= MAX_PROBES && oldest !== undefined) expected.delete(oldest);
      expected.set(plain(remote), performance.now() + PROBE_LASTS);
    },
    refused(where, remote, error) {
      if ((expected.get(plain(remote)) ?? 0) < performance.now()) told(where, remote, error);
    },
  };
}

/** A listener on all addresses sees IPv4 in IPv6's clothes. */
function plain(remote: string): string {
  return remote.replace(/^::ffff:/i, '');
}
