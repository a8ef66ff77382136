import { Option } from 'commander';
import { type Call, command, durationOption } from '../command.ts';
import { EXIT, millis } from '../output.ts';
import { type AnsweredDial, Following } from './watch-dials.ts';

interface Options {
  readonly destination: string;
  readonly failed?: true;
  readonly slowerThan: number;
  readonly for?: number;
}

export const watch = command({
  name: 'watch',
  summary: 'Print the dials of all gateways as they are answered',
  details:
    'It prints one line for each answered dial, and one document a line for programs, until it is interrupted. Members may come and go.',
  options: [
    new Option('--destination <text>', 'only dials to this host:port, or to any port of this host').default('', 'all'),
    new Option('--failed', 'only dials that failed'),
    durationOption('--slower-than <duration>', 'only dials that took at least this long', 0, 'all'),
    durationOption('--for <duration>', 'stop after this time'),
  ],
  examples: {
    watch: 'every dial',
    'watch --failed --destination 10.20.3.4': 'failed dials to one machine',
    'watch -o json --for 1m': 'one minute of dials, one JSON document per line',
  },
  async run({ options, output, plane, terminal }: Call<Options>) {
    const ends = options.for === undefined ? [] : [AbortSignal.timeout(options.for)];
    const filter = {
      tenant: options.tenant,
      destination: options.destination,
      onlyFailed: options.failed === true,
      slowerThanMs: options.slowerThan,
    };
    const missed = (count: number) => output.remark(`${count} dials missed: this machine reads too slowly`);
    const told = (dial: AnsweredDial) => output.line(dial, dialLine);
    await new Following(await plane(), filter, { told, missed }).run(AbortSignal.any([terminal.interrupted, ...ends]));
    return EXIT.good;
  },
});

/** Formats one dial in a line. */
export function dialLine(dial: AnsweredDial): string {
  const through = dial.agent === '' ? '' : ` through ${dial.agent} at ${dial.hub}`;
  const outcome = dial.ok ? 'established' : `failed: ${dial.error?.code}: ${dial.error?.text}`;
  const more = dial.attempts > 1 ? `, ${dial.attempts} attempts` : '';
  return `${dial.started} ${dial.gateway} ${dial.tenant} ${dial.destination}${through} ${millis(dial.ms)} ${outcome}${more}`;
}
