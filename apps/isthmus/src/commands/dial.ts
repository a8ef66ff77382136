import { once } from 'node:events';
import { isIP, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { adviceFor } from '@isthmus/findings';
import { adminApi } from '@isthmus/proto/admin';
import { inWords, parseDestination } from '@isthmus/tunnel';
import { InvalidArgumentError, Option } from 'commander';
import { type Call, command, count, destinationArgument, durationOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { EXIT, type ExitStatus, Failure, millis, plural, quantile, type Style, usage } from '../output.ts';
import { agentsAway } from '../plane/evidence.ts';
import type { Member } from '../plane/member.ts';
import { membersWith, type Plane } from '../plane/plane.ts';
import { opened, resolved } from '../through-gateway.ts';
import { type DialView, dialText, lineText, type PhaseView } from './dial-text.ts';

interface Options {
  readonly gateway?: string;
  readonly agent?: string;
  readonly from: 'plane' | 'here';
  readonly firstByte: number;
  readonly within: number;
  readonly count?: number;
  readonly interval: number;
}

function times(text: string): number {
  const wanted = count(text);
  if (wanted > ISTHMUS.seriesDials) throw new InvalidArgumentError(`want ${ISTHMUS.seriesDials} at most`);
  return wanted;
}

export const dial = command({
  name: 'dial',
  summary: 'Open a real tunnel to a destination, close it, and show where the time went',
  details:
    'The plane routes, traces and audits this dial like any other, and counts it nowhere. The gateway at --address dials, or else the first one that answers. A plane with tenants needs --tenant. JSON output has the same content, with phases as numbers. Exits with 1 if a dial fails, or with --first-byte if no byte comes.',
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
    durationOption(
      '--first-byte <duration>',
      'wait for the first byte of the destination; HTTP and TLS servers send none until asked',
      0,
      'do not wait',
    ),
    durationOption('--within <duration>', 'longest time for the dial itself', ISTHMUS.dialMs),
    new Option('--count <number>', 'dial so often, print a line for each, then percentiles').argParser(times),
    durationOption(
      '--interval <duration>',
      'with --count: from the start of one dial to the start of the next',
      ISTHMUS.seriesIntervalMs,
    ),
  ],
  examples: {
    'dial 10.20.3.4:10250': 'can it reach this kubelet, and what takes how long?',
    'dial db.internal:3306 --first-byte 2s': "with the server's greeting",
    'dial 10.20.3.4:10250 --agent agent-3': 'through one agent, to compare',
    'dial 10.20.3.4:10250 --count 20 --interval 1s': 'does it fail now and then, and how slow is it?',
    'dial 10.20.3.4:10250 --from here': 'without the plane: is it the destination?',
  },
  asksNobody: (_args, { from }: Options) => from === 'here',
  async run(call: Call<Options>) {
    const { options, output } = call;
    const once = await dialler(call);
    if (options.count !== undefined) return await repeated(call, once);
    const view = await once();
    output.show(view, dialText);
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
  const chosen = await answering(met, membersWith(met, 'gateway', gateway));
  const request = { destination, tenant, agentId: agent ?? '', timeoutMs: within, firstByteTimeoutMs: firstByte };
  return async () => {
    const value = await met.askOne(chosen, 'dial', request, within + firstByte + ISTHMUS.dialAnswerMs);
    return dialView(chosen, request, value, await adviceOn(met, chosen, value));
  };
}

/** Returns the first gateway that answers, and waits for no other. @throws Failure if none does */
async function answering(plane: Plane, gateways: readonly Member[]): Promise<Member> {
  const why: string[] = [];
  try {
    for await (const { member, error } of plane.lines('getStatus', {}, gateways)) {
      if (!error) return member;
      why.push(`${member.id}: ${plane.reason(error)}`);
    }
  } catch (error) {
    why.push(plane.reason(error));
  }
  throw new Failure(EXIT.unasked, `no gateway answers: ${why.join('; ')}`);
}

async function repeated(call: Call<Options>, once: () => Promise<DialView>): Promise<ExitStatus> {
  const { options, output, terminal } = call;
  const [destination = ''] = call.args;
  const { count: wanted = 1, interval } = options;
  const dials: DialView[] = [];
  for await (const view of series(once, { count: wanted, intervalMs: interval, signal: terminal.interrupted })) {
    dials.push(view);
    if (output.forPeople) output.line(view, lineText);
  }
  const summary = summaryOf(dials);
  output.show({ destination, dials, summary }, ({ summary: shown }, style) => seriesText(shown, style));
  return summary.failed > 0 || dials.length === 0 ? EXIT.wrong : EXIT.good;
}

interface SeriesOptions {
  readonly count: number;
  /** From the start of one dial to the start of the next. A dial that takes longer delays the next one. */
  readonly intervalMs: number;
  /** Ends the series early. */
  readonly signal: AbortSignal;
}

/** Dials again and again, never twice at once. */
export async function* series(
  once: () => Promise<DialView>,
  { count, intervalMs, signal }: SeriesOptions,
): AsyncGenerator<DialView> {
  for (let done = 0; done < count && !signal.aborted; done++) {
    const start = performance.now();
    yield await once();
    const left = start + intervalMs - performance.now();
    if (done + 1 < count && left > 0) await pause(left, undefined, { signal }).catch(() => {});
  }
}

type Summary = ReturnType<typeof summaryOf>;

/** What a series of dials says. Times are of dials that were established, in milliseconds. */
export function summaryOf(dials: readonly DialView[]) {
  const good = dials.filter(({ ok }) => ok);
  const times = good.map(({ ms }) => ms).sort((a, b) => a - b);
  const counted = (names: readonly string[]) => {
    const groups = [...Map.groupBy(names, (name) => name)];
    return groups.map(([name, { length }]) => [name, length] as const).sort(([, a], [, b]) => b - a);
  };
  const failed = dials.filter(({ ok }) => !ok).map(({ error }) => error?.code ?? 'no_first_byte');
  const agents = good.map(({ agent }) => agent).filter((agent) => agent !== '');
  return {
    dials: dials.length,
    failed: failed.length,
    /** Failed dials by the name of their error, the most frequent first. */
    errors: counted(failed).map(([code, count]) => ({ code, count })),
    /** Established dials by agent, the most frequent first. */
    agents: counted(agents).map(([agent, count]) => ({ agent, count })),
    ...(times.length > 0 && {
      minMs: quantile(times, 0),
      p50Ms: quantile(times, 0.5),
      p90Ms: quantile(times, 0.9),
      p99Ms: quantile(times, 0.99),
      maxMs: quantile(times, 1),
    }),
  };
}

export function seriesText(summary: Summary, style: Style): string {
  const { dials, failed, errors, agents, minMs = 0, p50Ms = 0, p90Ms = 0, p99Ms = 0, maxMs } = summary;
  const why = errors.map(({ code, count }) => `${count} ${code}`).join(', ');
  const bad = failed > 0 ? style.bad(`${failed} failed (${why})`) : style.good('none failed');
  const spread =
    agents.length > 0 ? `through ${agents.map(({ agent, count }) => `${agent} (${count})`).join(', ')}\n` : '';
  const [min, p50, p90, p99, max] = [minMs, p50Ms, p90Ms, p99Ms, maxMs ?? 0].map(millis);
  const times = maxMs === undefined ? '' : `min ${min}   p50 ${p50}   p90 ${p90}   p99 ${p99}   max ${max}\n`;
  return `\n${plural(dials, 'dial')}, ${bad}\n${spread}${times}`;
}

/** Returns what to do about a failed dial: the gateway's advice on the state of the plane, otherwise by the error's name. */
async function adviceOn(plane: Plane, gateway: Member, { dial }: adminApi.DialResponse): Promise<readonly string[]> {
  if (!dial?.error) return [];
  const { destination, tenant, error } = dial;
  const general = [adviceFor(error.code)];
  if (!ROUTING_ERRORS.includes(error.code)) return general;
  const { answers } = await plane.ask('explain', { destination, tenant }, { members: [gateway] });
  const advice = answers[0]?.value.advice ?? [];
  const away = error.code === 'destination_unavailable' ? await agentsAway(plane, tenant) : [];
  return [...(advice.length > 0 ? advice : general), ...away];
}

/** Errors about which the gateway knows more than the name says. */
const ROUTING_ERRORS = ['connection_limit_reached', 'connection_terminated', 'destination_unavailable'];

function dialView(
  gateway: Member,
  { destination, firstByteTimeoutMs: firstByte }: adminApi.DialRequest,
  value: adminApi.DialResponse,
  advice: readonly string[],
): DialView {
  const { dial: record, phases, firstByteMs, ended } = value;
  const error = record?.error;
  const established = record?.state === adminApi.DialState.DIAL_STATE_ESTABLISHED;
  const mute = established && firstByte > 0 && firstByteMs === undefined;
  return {
    destination,
    gateway: gateway.id,
    ok: established && !mute,
    dial: record?.dialId ?? '',
    trace: record?.traceId ?? '',
    tenant: record?.tenant ?? '',
    agent: record?.agentId ?? '',
    hub: record?.hubId ?? '',
    session: record?.sessionId ?? '',
    ms: record?.ms ?? 0,
    phases: phases.map(phaseView),
    ...(firstByteMs !== undefined && { firstByteMs }),
    ...(mute && ended === '' && { silentMs: firstByte }),
    ...(ended !== '' && { ended }),
    ...(error && { error: { code: error.code, text: error.text, advice } }),
  };
}

function phaseView(phase: adminApi.Phase): PhaseView {
  return { ...phase, failed: /\bfailed\b/.test(phase.detail) };
}

interface HereOptions {
  /** `host:port` */
  readonly destination: string;
  readonly withinMs: number;
  /** How long to wait for a first byte; 0 to wait for none. */
  readonly firstByteMs: number;
}

const ADVICE = [
  'this dial was made from this machine, without the plane: an agent may be able to reach what this machine cannot',
  'compare it with the same dial without --from here',
];

/** Opens a connection straight from this machine, and closes it. */
export async function dialFromHere({ destination, withinMs, firstByteMs }: HereOptions): Promise<DialView> {
  const { host, port } = parseDestination(destination);
  const start = performance.now();
  const phases: PhaseView[] = [];
  const timed = async <T>(name: string, act: () => Promise<T>): Promise<T> => {
    const from = performance.now();
    const done = (failed: boolean) => {
      const ms = performance.now() - from;
      phases.push({ name, depth: 1, startMs: from - start, ms, detail: '', failed });
    };
    try {
      const value = await act();
      done(false);
      return value;
    } catch (error) {
      done(true);
      throw error;
    }
  };
  const deadline = AbortSignal.timeout(withinMs);
  const sockets: Socket[] = [];
  try {
    const { addresses } = isIP(host) === 0 ? await timed('dns', () => resolved(host, deadline)) : { addresses: [host] };
    const { socket } = await timed('connect', () => opened(addresses, port, sockets, deadline));
    const ms = performance.now() - start;
    const first = firstByteMs > 0 ? await firstByte(socket, firstByteMs) : {};
    const { firstByteMs: took } = first;
    const waited = { name: 'first_byte', depth: 0, startMs: ms, detail: '', failed: false };
    const view = viewOf(destination, ms, phases);
    return {
      ...view,
      ok: firstByteMs === 0 || took !== undefined,
      ...first,
      phases: [...view.phases, ...(took === undefined ? [] : [{ ...waited, ms: took }])],
    };
  } catch (error) {
    const late = deadline.aborted;
    const ms = performance.now() - start;
    // An agent's words, and its name for it (RFC 9209). Only here: it brings all that carries tunnels.
    const { connectError } = await import('@isthmus/transport');
    // The phase that failed is the last one.
    const timeout = phases.at(-1)?.name === 'dns' ? 'dns_timeout' : 'connection_timeout';
    const { code, message: text } = late
      ? { code: timeout, message: `no answer within ${withinMs / 1000} s` }
      : connectError({ destination: { host, port } }, error as NodeJS.ErrnoException);
    return { ...viewOf(destination, ms, phases), ok: false, error: { code, text, advice: ADVICE } };
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

type FirstByte = Pick<DialView, 'firstByteMs' | 'silentMs' | 'ended'>;

async function firstByte(socket: Socket, ms: number): Promise<FirstByte> {
  const start = performance.now();
  const signal = AbortSignal.timeout(ms);
  try {
    const came = once(socket, 'data', { signal }).then(() => true);
    const ended = once(socket, 'end', { signal }).then(() => false);
    if (await Promise.race([came, ended])) return { firstByteMs: performance.now() - start };
    return { ended: 'closed by the destination' };
  } catch (error) {
    return signal.aborted ? { silentMs: ms } : { ended: inWords(error) };
  }
}

function viewOf(destination: string, ms: number, parts: readonly PhaseView[]): Omit<DialView, 'ok'> {
  const whole = { name: 'here', depth: 0, startMs: 0, ms, detail: '', failed: false };
  const none = { gateway: '', dial: '', trace: '', tenant: '', agent: '', hub: '', session: '' };
  return { destination, ...none, ms, phases: [whole, ...parts] };
}
