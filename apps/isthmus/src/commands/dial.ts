import { InvalidArgumentError, Option } from 'commander';
import { count, destinationArgument, duration } from '../arguments.ts';
import { type Call, command } from '../command.ts';
import { dialFromHere } from '../dial/from-here.ts';
import { PlaneDial } from '../dial/plane-dial.ts';
import { series, seriesText, summaryOf } from '../dial/series.ts';
import { type DialView, dialText, lineText } from '../dial/text.ts';
import { EXIT, type ExitStatus, usage } from '../exit.ts';
import { membersWith } from '../plane/choose.ts';

interface Options {
  readonly gateway?: string;
  readonly agent?: string;
  readonly from: 'plane' | 'here';
  readonly firstByte: number;
  readonly within: number;
  readonly count?: number;
  readonly interval: number;
}

/** All dials of a series are one JSON document. */
const MAX_DIALS = 10_000;

function times(text: string): number {
  const wanted = count(text);
  if (wanted > MAX_DIALS) throw new InvalidArgumentError(`want ${MAX_DIALS} at most`);
  return wanted;
}

export const dial = command({
  name: 'dial',
  summary: 'Open a real tunnel to a destination, close it, and show where the time went',
  details:
    'The plane routes, counts, traces and audits this dial like any other. The gateway at --address dials, or else the first one that answers. A plane with tenants needs --tenant. JSON output has the same content, with phases as numbers. Exits with 1 if a dial fails.',
  args: [destinationArgument()],
  options: [
    new Option('--gateway <id>', 'dial from this gateway'),
    new Option('--agent <id>', 'dial through this agent, whichever one the strategies would choose'),
    new Option(
      '--from <place>',
      'plane: through a gateway and an agent; here: straight from this machine, past the plane, to compare',
    )
      .choices(['plane', 'here'])
      .default('plane'),
    new Option(
      '--first-byte <duration>',
      'wait for the first byte of the destination; HTTP and TLS servers send none until asked',
    )
      .argParser(duration)
      .default(0, 'do not wait'),
    new Option('--within <duration>', 'longest time for the dial itself').argParser(duration).default(30_000, '30s'),
    new Option('--count <number>', 'dial so often, print a line for each, then percentiles').argParser(times),
    new Option('--interval <duration>', 'with --count: from the start of one dial to the start of the next')
      .argParser(duration)
      .default(1000, '1s'),
  ],
  examples: [
    { line: 'dial 10.20.3.4:10250', does: 'can it reach this kubelet, and what takes how long?' },
    { line: 'dial db.internal:3306 --first-byte 2s', does: "with the server's greeting" },
    { line: 'dial 10.20.3.4:10250 --agent agent-3', does: 'through one agent, to compare' },
    { line: 'dial 10.20.3.4:10250 --count 20 --interval 1s', does: 'does it fail now and then, and how slow is it?' },
    { line: 'dial 10.20.3.4:10250 --from here', does: 'without the plane: is it the destination?' },
  ],
  async run(call: Call<Options>) {
    const { options, output, terminal } = call;
    const once = await dialler(call);
    if (options.count !== undefined) return await repeated(call, once);
    const view = await once();
    output.show(view, () => dialText(view, terminal.size().columns, output.style));
    return view.ok ? EXIT.good : EXIT.wrong;
  },
});

/** Returns what dials once. */
async function dialler({ args: [destination = ''], options, plane }: Call<Options>): Promise<() => Promise<DialView>> {
  const { agent, firstByte, within, tenant, gateway, from } = options;
  if (from === 'here') {
    if (agent !== undefined || gateway !== undefined)
      throw usage('--from here dials past gateways and agents: leave out --gateway and --agent');
    return () => dialFromHere({ destination, withinMs: within, firstByteMs: firstByte });
  }
  const met = await plane();
  const request = { destination, tenant, agentId: agent ?? '', timeoutMs: within, firstByteTimeoutMs: firstByte };
  const dial = await PlaneDial.from(met, membersWith(met, 'gateway', gateway), request);
  return () => dial.once();
}

async function repeated(call: Call<Options>, once: () => Promise<DialView>): Promise<ExitStatus> {
  const {
    args: [destination = ''],
    options,
    output,
    terminal,
  } = call;
  const { count: wanted = 1, interval } = options;
  const dials: DialView[] = [];
  for await (const view of series(once, { count: wanted, intervalMs: interval, signal: terminal.interrupted })) {
    dials.push(view);
    if (output.forPeople) terminal.out(`${lineText(view, output.style)}\n`);
  }
  const summary = summaryOf(dials);
  output.show({ destination, dials, summary }, () => seriesText(summary, output.style));
  return summary.failed > 0 || dials.length === 0 ? EXIT.wrong : EXIT.good;
}
