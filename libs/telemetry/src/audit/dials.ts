import { RandomSet } from '@isthmus/runtime';
import { type ClosedBy, type DialRequest, isRefusedDial, type PlaneEvents, type TunnelInfo } from '@isthmus/tunnel';
import { subscribe } from '../subscribe.ts';
import { type Answer, type AuditRecord, auditRecord, type TunnelEnding } from './record.ts';

export interface DialAudit {
  /** Call when the gateway stops. From then on, tunnels count as closed by the plane, whichever side closes first. */
  stopping(): void;
  /** Writes the records of open tunnels, with their bytes so far. Later dials get no record. */
  end(): void;
}

/**
 * Writes one record for each dial at a gateway, when it fails or when its tunnel has ended. A request that is not a dial gets no
 * record.
 * @param admits whether a dial that the gateway itself refused gets a record; it is counted otherwise. Default: each does
 */
export function auditDials(
  events: PlaneEvents,
  gateway: string,
  write: (record: AuditRecord, dial: DialRequest) => void,
  admits: (kind: string) => boolean = () => true,
): DialAudit {
  let stopping = false;
  /** Dials that were answered with a tunnel, until that tunnel ends. */
  const answers = new WeakMap<DialRequest, Answer>();
  const tunnels = new RandomSet<TunnelInfo>();
  const end = (dial: DialRequest, ending: TunnelEnding) => {
    const answer = answers.get(dial);
    if (answer && answers.delete(dial)) write(auditRecord(gateway, dial, answer, ending), dial);
  };
  const ending = (by: ClosedBy, error?: Error) => {
    return stopping ? ({ by: 'plane', error: new Error('the gateway ended') } as const) : { by, error };
  };
  const unsubscribe = subscribe(events, {
    'dial:end'(role, dial, outcome) {
      if (role !== 'gateway') return;
      const answer = { outcome, time: Date.now() - outcome.ms, start: performance.now() - outcome.ms };
      if (!outcome.error) answers.set(dial, answer);
      else if (!isRefusedDial(dial, outcome.error) || admits(`dials of tenant ${dial.tenant}`))
        write(auditRecord(gateway, dial, answer), dial);
    },
    // The destination was reached, but the caller was gone, so no tunnel will report it.
    'dial:undelivered'(dial) {
      const error = new Error('the caller left before the answer');
      end(dial, { ms: 0, up: 0, down: 0, by: 'caller', error });
    },
    'tunnel:open'(tunnel) {
      if (tunnel.role === 'gateway') tunnels.add(tunnel);
    },
    'tunnel:close'(tunnel, { ms, closedBy, error }) {
      const { dial, up, down, resumable } = tunnel;
      if (tunnels.delete(tunnel)) end(dial, { ms, up, down, resumable, ...ending(closedBy, error) });
    },
  });
  return {
    stopping() {
      stopping = true;
    },
    end() {
      unsubscribe();
      stopping = true;
      for (const { dial, up, down, since, resumable } of tunnels)
        end(dial, { ms: Date.now() - since, up, down, resumable, ...ending('plane') });
      tunnels.clear();
    },
  };
}
