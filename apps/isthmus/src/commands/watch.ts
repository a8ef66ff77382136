import { Option } from 'commander';
import { duration } from '../arguments.ts';
import { type Call, command } from '../command.ts';
import { EXIT } from '../exit.ts';
import type { Terminal } from '../terminal.ts';
import type { DialView } from '../watch/dial.ts';
import { Following } from '../watch/follow.ts';
import { RecentDials } from '../watch/recent.ts';
import { dialLine, picture } from '../watch/screen.ts';

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
    'On a terminal it redraws; elsewhere, and as JSON, it prints one line for each answered dial. Members may come and go. Ctrl-C ends it.',
  options: [
    new Option('--destination <text>', 'only dials to this host:port, or to any port of this host').default('', 'all'),
    new Option('--failed', 'only dials that failed'),
    new Option('--slower-than <duration>', 'only dials that took at least this long')
      .argParser(duration)
      .default(0, 'all'),
    new Option('--for <duration>', 'stop after this time').argParser(duration),
  ],
  examples: [
    { line: 'watch', does: 'the live screen' },
    { line: 'watch --failed --destination 10.20.3.4', does: 'failed dials to one machine' },
    { line: 'watch -o json --for 1m', does: 'one minute of dials, one JSON document per line' },
  ],
  async run({ options, output, plane, terminal }: Call<Options>) {
    const drawn = terminal.interactive && output.format === 'table';
    const ends = options.for === undefined ? [] : [AbortSignal.timeout(options.for)];
    const signal = AbortSignal.any([terminal.interrupted, ...ends]);
    const recent = new RecentDials();
    const told = drawn ? (dial: DialView) => recent.add(dial) : (dial: DialView) => output.line(dial, dialLine);
    const filter = {
      tenant: options.tenant,
      destination: options.destination,
      onlyFailed: options.failed === true,
      slowerThanMs: options.slowerThan,
      recent: drawn ? RECENT : 0,
    };
    const following = new Following(await plane(), filter, signal, told);
    if (!drawn) await following.run();
    else {
      await redrawn(terminal, signal, following.run(), () => {
        const now = Date.now();
        recent.forget(now);
        const members = [...following.members.values()];
        return picture({ now, members, recent, unheard: following.unheard }, output.style);
      });
    }
    return EXIT.good;
  },
});

/** Fills the screen from the start. */
const RECENT = 500;

const REDRAW_MS = 1000;

/** Switches to a separate screen without cursor and wrapping: long lines are cut, and the others stay in place. */
const BEGIN = '\u001b[?1049h\u001b[?25l\u001b[?7l';
const END = '\u001b[?7h\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

async function redrawn(terminal: Terminal, signal: AbortSignal, done: Promise<void>, lines: () => string[]) {
  const draw = () => {
    const shown = lines().slice(0, terminal.size().rows - 1);
    terminal.out(`${HOME}${shown.map((line) => `${line}${CLEAR_LINE}\n`).join('')}${CLEAR_BELOW}`);
  };
  terminal.out(BEGIN);
  const timer = setInterval(draw, REDRAW_MS);
  const stop = () => clearInterval(timer);
  signal.addEventListener('abort', stop, { once: true });
  try {
    draw();
    await done;
  } finally {
    stop();
    terminal.out(END);
  }
}
