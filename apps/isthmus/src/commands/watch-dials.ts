import { setTimeout as pause } from 'node:timers/promises';
import { adminApi } from '@isthmus/proto/admin';
import { LruMap } from '@isthmus/runtime';
import { ISTHMUS } from '../defaults.ts';
import { isoTime, renamed } from '../output.ts';
import type { Plane } from '../plane/plane.ts';

/** An answered dial, as a gateway saw it. */
export type AnsweredDial = NonNullable<ReturnType<typeof answeredDial>>;

/** Returns undefined for a dial that is still running. */
function answeredDial(gateway: string, record: adminApi.DialRecord) {
  if (record.state === adminApi.DialState.DIAL_STATE_RUNNING) return undefined;
  const { dialId, tenant, destination, caller, agentId, hubId, traceId, parkedMs, attempts, error } = record;
  return {
    gateway,
    ...renamed({ dialId, tenant, destination, caller, agentId, hubId, traceId, parkedMs }),
    started: isoTime(record.startedMs),
    ok: record.state === adminApi.DialState.DIAL_STATE_ESTABLISHED,
    ms: record.ms ?? 0,
    attempts: attempts.length,
    ...(error && { error: { code: error.code, text: error.text } }),
  };
}

interface Filter {
  readonly tenant: string;
  readonly destination: string;
  readonly onlyFailed: boolean;
  readonly slowerThanMs: number;
}

interface DialListener {
  readonly told: (dial: AnsweredDial) => void;
  /** Called with the number of dials that a member could not report because this machine read too slowly. */
  readonly missed: (count: number) => void;
}

/** Follows the dials of all gateways, while members join and leave. */
export class Following {
  readonly #plane: Plane;
  readonly #filter: Filter;
  readonly #listener: DialListener;
  readonly #streams = new Map<string, Promise<void>>();
  /** Dials already reported. A reopened stream starts with some earlier ones. */
  readonly #heard = new LruMap<string, true>(ISTHMUS.watchToldDials);

  constructor(plane: Plane, filter: Filter, listener: DialListener) {
    this.#plane = plane;
    this.#filter = filter;
    this.#listener = listener;
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      for (const { id, roles } of this.#plane.members) {
        if (!roles.includes('gateway') || this.#streams.has(id)) continue;
        const stream = this.#stream(id, signal).finally(() => this.#streams.delete(id));
        this.#streams.set(id, stream);
      }
      await pause(ISTHMUS.watchMembersMs, undefined, { signal }).catch(() => {});
      // If nobody answers, the known members are asked until one comes back.
      if (!signal.aborted) await this.#plane.meet().catch(() => {});
    }
    await Promise.all(this.#streams.values());
  }

  /** Follows one gateway's dials. Reopens the stream whenever it ends, for as long as the gateway is in the plane. */
  async #stream(id: string, signal: AbortSignal): Promise<void> {
    for (let recent = 0; !signal.aborted; recent = ISTHMUS.watchMissedDials) {
      const member = this.#plane.members.find((each) => each.id === id);
      if (!member) return;
      try {
        const request = { ...this.#filter, role: adminApi.Role.ROLE_GATEWAY, recent };
        for await (const { answer } of this.#plane.lines('watchDials', request, [member], signal)) {
          if (answer && answer.lost > 0) this.#listener.missed(answer.lost);
          const view = answer?.dial && answeredDial(id, answer.dial);
          if (view) this.#tell(view);
        }
      } catch {
        // A gateway that does not answer is asked again; `isthmus status` says why it does not.
      }
      await pause(ISTHMUS.watchAgainMs, undefined, { signal }).catch(() => {});
    }
  }

  #tell(dial: AnsweredDial): void {
    if (this.#heard.has(dial.dial)) return;
    this.#heard.set(dial.dial, true);
    this.#listener.told(dial);
  }
}
