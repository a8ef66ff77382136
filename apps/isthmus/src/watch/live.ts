import type { Style } from '../output/style.ts';
import type { Terminal } from '../terminal.ts';
import { AT_START, type Controls, chosen, keysIn, pressed } from './controls.ts';
import type { Following } from './follow.ts';
import type { RecentDials } from './recent.ts';
import { footer, HELP, type Picture, picture } from './screen.ts';

const REDRAW_MS = 1000;

/** Switches to a separate screen without cursor and wrapping. */
const BEGIN = '\u001b[?1049h\u001b[?25l\u001b[?7l';
const END = '\u001b[?7h\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

export interface Live {
  readonly terminal: Terminal;
  readonly style: Style;
  readonly following: Following;
  readonly recent: RecentDials;
  /** Ends the screen. */
  readonly quit: () => void;
}

/** The screen of `isthmus watch`: redrawn every second, at each key and when the window changes its size. */
export class LiveScreen implements Disposable {
  readonly #live: Live;
  readonly #stops: (() => void)[];
  #controls: Controls = AT_START;
  /** What is shown while it is paused. */
  #still: Omit<Picture, 'room' | 'controls'> | undefined;

  constructor(live: Live) {
    this.#live = live;
    const { terminal } = live;
    terminal.out(BEGIN);
    const timer = setInterval(() => this.draw(), REDRAW_MS);
    const stops = [terminal.keys((input) => this.#take(input)), terminal.resized(() => this.draw())];
    this.#stops = [() => clearInterval(timer), ...stops];
    this.draw();
  }

  draw(): void {
    const { terminal, style } = this.#live;
    const room = terminal.size();
    const controls = this.#controls;
    const told = { ...(this.#still ?? this.#now()), controls, room };
    const lines = controls.help ? HELP : picture(told, style);
    const shown = lines.slice(0, room.rows - 1).map((line) => `${CLEAR_LINE}${line}\r\n`);
    // A line as wide as the screen leaves the cursor on its last character, so lines are cleared before they are written.
    const last = `\u001b[${room.rows};1H${CLEAR_LINE}${footer(controls, room, style)}`;
    terminal.out(`${HOME}${shown.join('')}${CLEAR_BELOW}${last}`);
  }

  [Symbol.dispose](): void {
    for (const stop of this.#stops) stop();
    this.#live.terminal.out(END);
  }

  #now(): Omit<Picture, 'room' | 'controls'> {
    const { following, recent } = this.#live;
    const now = Date.now();
    recent.forget(now);
    const wanted = chosen(this.#controls);
    return {
      now,
      members: [...following.members.values()],
      recent: wanted ? recent.only(wanted) : recent,
      unheard: following.unheard,
    };
  }

  #take(input: string): void {
    for (const key of keysIn(input)) {
      const controls = pressed(this.#controls, key);
      if (!controls) {
        this.#live.quit();
        return;
      }
      this.#controls = controls;
    }
    this.#pause();
    this.draw();
  }

  /** A pause keeps what is on the screen. A filter set meanwhile holds when it ends. */
  #pause(): void {
    if (!this.#controls.paused) this.#still = undefined;
    else if (!this.#still) {
      const now = this.#now();
      this.#still = { ...now, members: now.members.map((each) => ({ ...each })), recent: now.recent.only(() => true) };
    }
  }
}
