import type { adminApi } from '@isthmus/proto/admin';
import { formatDestination } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import { type Call, dialMessage, exhausted, invalid, ROLES } from './messages.ts';
import type { SeenDial } from './recent-dials.ts';

/** An event for a watcher, and the number of events dropped before it. */
interface Told<T> {
  readonly event: T | undefined;
  readonly lost: number;
}

/**
 * A queue of events for one watcher. The emitter never waits. Events that a slow watcher cannot take are dropped, and counted in the
 * next one it gets.
 */
export class Watch<T> {
  readonly #waiting: Told<T>[] = [];
  readonly #most: number;
  #lost = 0;
  #wake = () => {};

  constructor(most: number = ADMIN.watchQueue) {
    this.#most = most;
  }

  tell(event: T): void {
    if (this.#waiting.length >= this.#most) {
      this.#lost++;
      return;
    }
    this.#waiting.push({ event, lost: this.#lost });
    this.#lost = 0;
    this.#wake();
  }

  /** Yields all events until `signal` aborts. */
  async *until(signal: AbortSignal): AsyncGenerator<Told<T>> {
    const wake = () => this.#wake();
    signal.addEventListener('abort', wake, { once: true });
    try {
      while (!signal.aborted) {
        yield* this.#take();
        if (signal.aborted || this.#waiting.length > 0) continue;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }

  *#take(): Generator<Told<T>> {
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) yield next;
    if (this.#lost === 0) return;
    const lost = this.#lost;
    this.#lost = 0;
    yield { event: undefined, lost };
  }
}

type Matches = (dial: SeenDial) => boolean;
export const watchDials: Call<'watchDials'> = async function* ({ recent: seen }, request, { signal }) {
  const matches = filterOf(request);
  const watch = new Watch<SeenDial>();
  // Starts before the recent dials are read, so that events during their sending follow them.
  const end = request.recentOnly ? () => {} : begin(seen, matches, watch, request.firstBytes);
  try {
    const recent = [...seen.dials()].filter(matches);
    const most = Math.min(request.recent ?? recent.length, recent.length);
    for (const dial of recent.slice(recent.length - most)) {
      yield { dial: dialMessage(dial, request.phases), lost: 0, recent: true };
    }
    if (request.recentOnly) return;
    for await (const { event, lost } of watch.until(signal)) {
      yield { dial: event && dialMessage(event, request.phases), lost, recent: false };
    }
  } finally {
    end();
  }
};

function begin(
  seen: AdminBackend['recent'],
  matches: Matches,
  watch: Watch<SeenDial>,
  firstBytes: boolean,
): () => void {
  const end = seen.watch((dial, again) => {
    if ((!again || firstBytes) && matches(dial)) watch.tell(dial);
  });
  if (end) return end;
  const text = `too many clients watch this program's dials: ${ADMIN.watchers} may, and those of one tenant as many as they leave to others`;
  throw exhausted(`${text}; stop one of them`);
}

function filterOf({ tenant, destination, onlyFailed, slowerThanMs, role }: adminApi.WatchDialsRequest): Matches {
  if (!(slowerThanMs >= 0)) throw invalid(`slower_than_ms is ${slowerThanMs}: want 0 or more`);
  const wanted: Matches[] = [];
  if (tenant !== '') wanted.push((dial) => dial.tenant === tenant);
  if (role !== 0) wanted.push((dial) => ROLES[dial.role] === role);
  if (onlyFailed) wanted.push(({ outcome }) => outcome?.error !== undefined);
  if (slowerThanMs > 0) wanted.push(({ outcome }) => outcome !== undefined && outcome.ms >= slowerThanMs);
  const lower = destination.toLowerCase();
  if (lower !== '') wanted.push((dial) => leadsTo(dial, lower));
  return (dial) => wanted.every((holds) => holds(dial));
}

/** @param wanted host:port, or a host with or without brackets, in lower case */
function leadsTo({ destination }: SeenDial, wanted: string): boolean {
  const host = destination.host.toLowerCase();
  return wanted === host || wanted === `[${host}]` || wanted === formatDestination(destination).toLowerCase();
}
