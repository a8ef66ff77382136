import { Option } from 'commander';
import { type Call, command, durationOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import type { Style } from '../output.ts';
import { EXIT } from '../output.ts';
import type { Terminal } from '../terminal.ts';
import { type AnsweredDial, DialsOfMinute, Following } from './watch-dials.ts';
import {
  AT_START,
  type Controls,
  chosen,
  dialLine,
  footer,
  HELP,
  keysIn,
  type Picture,
  picture,
  pressed,
} from './watch-screen.ts';

interface Options {
  readonly destination: string;
  readonly failed?: true;
  readonly slowerThan: number;
  readonly for?: number;
}

export const watch = command({
  name: 'watch',
  summary: 'Watch the dials of all gateways live: rates, errors, the slowest, tenants',
  details:
    'On a terminal it redraws: q quits, p pauses, / filters, f shows only failed dials, s and m sort, ? lists the keys. Elsewhere, and for programs, it prints one line for each answered dial. Members may come and go.',
  options: [
    new Option('--destination <text>', 'only dials to this host:port, or to any port of this host').default('', 'all'),
    new Option('--failed', 'only dials that failed'),
    durationOption('--slower-than <duration>', 'only dials that took at least this long', 0, 'all'),
    durationOption('--for <duration>', 'stop after this time'),
  ],
  examples: [
    { line: 'watch', does: 'the live screen' },
    { line: 'watch --failed --destination 10.20.3.4', does: 'failed dials to one machine' },
    { line: 'watch -o json --for 1m', does: 'one minute of dials, one JSON document per line' },
  ],
  async run({ options, output, plane, terminal }: Call<Options>) {
    const drawn = terminal.interactive && output.forPeople;
    const quit = new AbortController();
    const ends = options.for === undefined ? [] : [AbortSignal.timeout(options.for)];
    const signal = AbortSignal.any([terminal.interrupted, quit.signal, ...ends]);
    const recent = new DialsOfMinute();
    const told = drawn ? (dial: AnsweredDial) => recent.add(dial) : (dial: AnsweredDial) => output.line(dial, dialLine);
    const filter = {
      tenant: options.tenant,
      destination: options.destination,
      onlyFailed: options.failed === true,
      slowerThanMs: options.slowerThan,
      recent: drawn ? ISTHMUS.watchEarlierDials : 0,
    };
    const following = new Following(await plane(), filter, signal, told);
    const screen = drawn
      ? new LiveScreen({ terminal, style: output.style, following, recent, quit: () => quit.abort() })
      : undefined;
    try {
      await following.run();
    } finally {
      // Node 22 has no `using`.
      screen?.[Symbol.dispose]();
    }
    return EXIT.good;
  },
});

interface Live {
  readonly terminal: Terminal;
  readonly style: Style;
  readonly following: Following;
  readonly recent: DialsOfMinute;
  /** Ends the screen. */
  readonly quit: () => void;
}

/** The screen of `isthmus watch`: redrawn every second, at each key and when the window changes its size. */
class LiveScreen implements Disposable {
  readonly #live: Live;
  readonly #stops: (() => void)[];
  #controls: Controls = AT_START;
  /** What is shown while it is paused. */
  #still: Omit<Picture, 'room' | 'controls'> | undefined;

  constructor(live: Live) {
    this.#live = live;
    const { terminal } = live;
    terminal.out(BEGIN);
    const timer = setInterval(() => this.draw(), ISTHMUS.watchDrawMs);
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

/** Switches to a separate screen without cursor and wrapping. */
const BEGIN = '\u001b[?1049h\u001b[?25l\u001b[?7l';

const END = '\u001b[?7h\u001b[?25h\u001b[?1049l';

const HOME = '\u001b[H';

const CLEAR_LINE = '\u001b[K';

const CLEAR_BELOW = '\u001b[J';
