import { Option } from 'commander';
import { duration } from '../arguments.ts';
import { type Call, command } from '../command.ts';
import { EXIT } from '../exit.ts';
import type { DialView } from '../watch/dial.ts';
import { Following } from '../watch/follow.ts';
import { LiveScreen } from '../watch/live.ts';
import { RecentDials } from '../watch/recent.ts';
import { dialLine } from '../watch/screen.ts';

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
    const drawn = terminal.interactive && output.forPeople;
    const quit = new AbortController();
    const ends = options.for === undefined ? [] : [AbortSignal.timeout(options.for)];
    const signal = AbortSignal.any([terminal.interrupted, quit.signal, ...ends]);
    const recent = new RecentDials();
    const told = drawn ? (dial: DialView) => recent.add(dial) : (dial: DialView) => output.line(dial, dialLine);
    const filter = {
      tenant: options.tenant,
      destination: options.destination,
      onlyFailed: options.failed === true,
      slowerThanMs: options.slowerThan,
      recent: drawn ? RECENT_DIALS : 0,
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

/** Fills the screen from the start. */
const RECENT_DIALS = 500;
