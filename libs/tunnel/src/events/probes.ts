import type { PlaneEventMap } from './events.ts';

/** How long after its announcement a probe's refusals are ignored, in milliseconds. */
const PROBE_LASTS = 30_000;

/** How many announced probes are remembered. One `isthmus check` probes two ports of a hub. */
const MAX_PROBES = 100;

type Heard<Name extends keyof PlaneEventMap> = (...args: PlaneEventMap[Name]) => void;

/**
 * Returns listeners that pass on refusals, except those of `isthmus check`. The check announces its address before its handshake. It
 * does not authenticate at the port it probes, so the port refuses it, and that should alert nobody.
 */
export function unlessProbed(heard: Heard<'refused'>): {
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
      if ((expected.get(plain(remote)) ?? 0) < performance.now()) heard(where, remote, error);
    },
  };
}

/** Removes the IPv4-mapped prefix: a dual-stack listener sees IPv4 peers as `::ffff:10.0.0.1`. */
function plain(remote: string): string {
  return remote.replace(/^::ffff:/i, '');
}
