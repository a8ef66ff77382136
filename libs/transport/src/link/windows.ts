import type { Http2Session } from 'node:http2';

/**
 * What one stalled tunnel may hold, in bytes: the window that its sender fills. Bulk needs the largest (measured: .49 GB/s,
 * and .40 with 64 KiB); with the smallest 8,000 stalled tunnels stay within the budget.
 */
export const LARGEST_WINDOW = 1024 * 1024;
const SMALLEST_WINDOW = 16 * 1024;

/** What all stalled tunnels on a process' links may hold together, in bytes. */
const BUDGET = 128 * 1024 * 1024;

type Session = Pick<Http2Session, 'settings' | 'closed' | 'destroyed' | 'once'>;

interface Link {
  open: number;
  /** What was asked of the other side last. */
  window: number;
  /** Node keeps a list of questions without an answer, and ends a session with too many of them. */
  asking: boolean;
}

/**
 * The stream window of all links of a process: it follows the number of their open tunnels, so that together they hold no
 * more than a budget. A power of two, and larger again only when there is room for twice as many tunnels, so it changes
 * seldom.
 */
export class StreamWindows {
  readonly #budget: number;
  readonly #links = new Map<Session, Link>();
  #open = 0;
  #window = LARGEST_WINDOW;

  constructor(budget = BUDGET) {
    this.#budget = budget;
  }

  /** Counts a tunnel that opened on a link. */
  opened(session: Session): void {
    const link = this.#link(session);
    link.open++;
    this.#count(1);
    this.#ask(session, link);
  }

  /** Counts a tunnel that closed; not to be called once its session has. */
  closed(session: Session): void {
    const link = this.#links.get(session);
    if (!link) return;
    link.open--;
    this.#count(-1);
  }

  #link(session: Session): Link {
    const known = this.#links.get(session);
    if (known) return known;
    const link = { open: 0, window: LARGEST_WINDOW, asking: false };
    this.#links.set(session, link);
    session.once('close', () => {
      this.#links.delete(session);
      this.#count(-link.open);
    });
    return link;
  }

  #count(by: number): void {
    this.#open += by;
    const before = this.#window;
    this.#window = Math.min(this.#fitting(1), Math.max(before, this.#fitting(2)));
    if (this.#window === before) return;
    for (const [session, link] of this.#links) if (link.open > 0) this.#ask(session, link);
  }

  /** The window that fits when there are `times` as many tunnels. */
  #fitting(times: number): number {
    const share = this.#budget / Math.max(1, this.#open * times);
    return Math.min(LARGEST_WINDOW, Math.max(SMALLEST_WINDOW, 2 ** Math.floor(Math.log2(share))));
  }

  #ask(session: Session, link: Link): void {
    if (link.window === this.#window || link.asking || session.closed || session.destroyed) return;
    link.window = this.#window;
    link.asking = true;
    session.settings({ initialWindowSize: link.window }, () => {
      link.asking = false;
      this.#ask(session, link);
    });
  }
}

/** This process'. */
export const streamWindows = new StreamWindows();
