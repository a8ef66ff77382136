import { getOrPut, Queue, Rounds, type TakesTurns } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import type { DialRequest } from '../dial.ts';
import type { Stage } from '../pipeline.ts';

interface TurnsOptions {
  readonly startsATick?: number;
  /** How many of a tenant's are under way and young at most. */
  readonly young?: number;
  /** Runs the callback in the next tick of the event loop. */
  readonly later?: (next: () => void) => void;
}

/**
 * Lets tenants take turns when more dials come than one tick of the event loop should start: a flood of one tenant's waits, and dials of
 * the others start ahead of it. `DialLimiter` bounds what waits, as pending dials.
 */
export function takeTurns(): Stage {
  const turns = new Turns();
  const places = new Map<DialRequest, Place>();
  return {
    name: 'takeTurns',
    enter(dial, waiting) {
      let waits = false;
      waits = !turns.enter(dial.tenant, (place) => {
        places.set(dial, place);
        if (waits) waiting.goOn();
      });
      return waits ? 'waits' : undefined;
    },
    left(dial) {
      const place = places.get(dial);
      places.delete(dial);
      if (place) turns.leave(place);
    },
  };
}

/** The same for what is asked with a promise. */
export function inTurns<Request extends Pick<DialRequest, 'tenant'>, Answer>(
  ask: (request: Request) => Promise<Answer>,
  options: TurnsOptions = {},
): (request: Request) => Promise<Answer> {
  const turns = new Turns(options);
  const asked = async (request: Request, place: Place) => {
    try {
      return await ask(request);
    } finally {
      turns.leave(place);
    }
  };
  return (request) => new Promise((resolve) => turns.enter(request.tenant, (place) => resolve(asked(request, place))));
}

/** The same for attaches, which start behind new dials. */
export function attachesInTurns<Request extends Pick<DialRequest, 'tenant'>, Answer>(
  attach: (request: Request) => Promise<Answer>,
): (request: Request) => Promise<Answer> {
  return inTurns(attach, { startsATick: TUNNEL.attachStartsATick, young: TUNNEL.youngAttaches });
}

/** The place of a dial that is under way, among those of its tenant. */
interface Place {
  readonly line: TenantLine;
  readonly cohort: number;
}

class Turns {
  readonly #startsATick: number;
  readonly #young: number;
  readonly #later: (next: () => void) => void;
  readonly #tenants = new Map<string, TenantLine>();
  /** Those that have dials waiting and may start some. */
  readonly #rounds = new Rounds<TenantLine>(1);
  /** Those that have dials waiting, and enough under way. */
  readonly #full = new Set<TenantLine>();
  /** Dials that may still start in this tick of the event loop. */
  #left: number;
  #scheduled = false;
  #aging: NodeJS.Timeout | undefined;

  constructor(options: TurnsOptions = {}) {
    const { startsATick = TUNNEL.startsATick, young = TUNNEL.youngDials, later = setImmediate } = options;
    this.#startsATick = startsATick;
    this.#young = young;
    this.#later = later;
    this.#left = startsATick;
  }

  /** Starts one of a tenant's when it is its turn. @returns whether that is now */
  enter(tenant: string, start: (place: Place) => void): boolean {
    this.#schedule();
    const line = getOrPut(this.#tenants, tenant, () => new TenantLine(tenant));
    if (this.#left > 0 && !this.#rounds.current && this.#isFree(line)) {
      this.#left--;
      start(this.#begin(line));
      return true;
    }
    line.push(() => start(this.#begin(line)));
    this.#enter(line);
    return false;
  }

  #begin(line: TenantLine): Place {
    line.young++;
    line.running++;
    return { line, cohort: line.cohort };
  }

  /** It is under way no more. */
  leave({ line, cohort }: Place): void {
    if (cohort === line.cohort) line.young--;
    line.running--;
    if (this.#full.delete(line)) this.#enter(line);
    else if (line.size === 0 && line.running === 0) this.#tenants.delete(line.tenant);
  }

  /** Whether it may have another one under way. */
  #isFree({ young }: TenantLine): boolean {
    return young < this.#young;
  }

  /** A tenant has dials waiting. */
  #enter(line: TenantLine): void {
    if (this.#isFree(line)) {
      this.#rounds.enter(line);
      this.#schedule();
      return;
    }
    this.#full.add(line);
    this.#aging ??= setInterval(() => this.#age(), TUNNEL.youngMs).unref();
  }

  #schedule(): void {
    if (!this.#scheduled) this.#later(() => this.#startSome());
    this.#scheduled = true;
  }

  #startSome(): void {
    this.#scheduled = false;
    for (this.#left = this.#startsATick; this.#left > 0 && this.#rounds.current; this.#left--) {
      const line = this.#rounds.current;
      const start = line.shift();
      // Its place in the round is settled first: the dial may come to an end at once.
      if (line.size === 0 || line.young + 1 >= this.#young) this.#rounds.leave();
      else this.#rounds.spend(1);
      start?.();
      if (line.size > 0 && line.next === undefined) this.#enter(line);
    }
    if (this.#left < this.#startsATick) this.#schedule();
  }

  /** Dials that have been under way for that long give their places to others. */
  #age(): void {
    clearInterval(this.#aging);
    this.#aging = undefined;
    for (const line of [...this.#full]) {
      this.#full.delete(line);
      line.cohort++;
      line.young = 0;
      this.#enter(line);
    }
  }
}

/** A tenant's dials that wait, the first to come first. */
class TenantLine extends Queue<() => void> implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  readonly tenant: string;
  /** Dials under way that started in the present cohort. */
  young = 0;
  cohort = 0;
  /** Dials under way. While there are any, the tenant has no other line. */
  running = 0;

  constructor(tenant: string) {
    super();
    this.tenant = tenant;
  }
}
