import { adminApi } from '@isthmus/proto/admin';
import { Option } from 'commander';
import { destinationArgument, duration } from '../arguments.ts';
import { type Call, command } from '../command.ts';
import { EXIT, Failure, usage } from '../exit.ts';
import { membersWith } from '../plane/choose.ts';
import type { Answer, Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import { isInvalid } from '../plane/reason.ts';
import { adviceFor } from './advice.ts';
import { type DialView, dialText, type PhaseView } from './dial-text.ts';

interface Options {
  readonly gateway?: string;
  readonly agent?: string;
  readonly firstByte: number;
  readonly within: number;
}

export const dial = command({
  name: 'dial',
  summary: 'Open a real tunnel to a destination, close it, and show where the time went',
  details:
    'The plane routes, counts, traces and audits this dial like any other. The gateway at --address dials, or else the first one that answers. A plane with tenants needs --tenant. JSON output has the same content, with phases as numbers. Exits with 1 if the dial fails.',
  args: [destinationArgument()],
  options: [
    new Option('--gateway <id>', 'dial from this gateway'),
    new Option('--agent <id>', 'dial through this agent, whichever one the strategies would choose'),
    new Option(
      '--first-byte <duration>',
      'wait for the first byte of the destination; HTTP and TLS servers send none until asked',
    )
      .argParser(duration)
      .default(0, 'do not wait'),
    new Option('--within <duration>', 'longest time for the dial itself').argParser(duration).default(30_000, '30s'),
  ],
  examples: [
    { line: 'dial 10.20.3.4:10250', does: 'can it reach this kubelet, and what takes how long?' },
    { line: 'dial db.internal:3306 --first-byte 2s', does: "with the server's greeting" },
    { line: 'dial 10.20.3.4:10250 --agent agent-3', does: 'through one agent, to compare' },
  ],
  async run({ args: [destination = ''], options, output, plane, terminal }: Call<Options>) {
    const { agent = '', firstByte, within, tenant, gateway } = options;
    const request = { destination, tenant, agentId: agent, timeoutMs: within, firstByteTimeoutMs: firstByte };
    const met = await plane();
    const { member, value } = await askFirst(met, membersWith(met, 'gateway', gateway), request);
    const view = dialView({ destination, gateway: member, firstByte }, value, await adviceOf(met, member, value));
    output.show(view, () => dialText(view, terminal.size().columns, output.style));
    return view.ok ? EXIT.good : EXIT.wrong;
  },
});

/** Time for the way to the gateway, on top of the dial's. */
const ON_TOP_MS = 2000;

/** Dials once, from the first gateway that answers. */
async function askFirst(
  plane: Plane,
  gateways: readonly Member[],
  request: adminApi.DeepPartial<adminApi.DialRequest>,
): Promise<Answer<adminApi.DialResponse>> {
  const present = await plane.askThese(gateways, (admin, signal) => admin.getStatus({}, { signal }));
  const [first] = present.answers;
  if (!first) {
    const why = present.unanswered.map(({ member, reason }) => `${member}: ${reason}`).join('; ');
    throw new Failure(EXIT.unasked, `no gateway answers: ${why}`);
  }
  const { member } = first;
  const signal = AbortSignal.timeout((request.timeoutMs ?? 0) + (request.firstByteTimeoutMs ?? 0) + ON_TOP_MS);
  try {
    return { member, value: await plane.client(member).dial(request, { signal }) };
  } catch (error) {
    if (isInvalid(error)) throw usage(plane.reason(error));
    throw new Failure(EXIT.unasked, `${member.id} does not dial: ${plane.reason(error)}`, { cause: error });
  }
}

/** Errors about which the gateway knows more than the name says. */
const ROUTING_ERRORS = ['destination_unavailable', 'connection_terminated'];

/** Returns what to do about a failed dial: the gateway's advice on the state of the plane, otherwise by the error's name. */
async function adviceOf(plane: Plane, gateway: Member, { dial }: adminApi.DialResponse): Promise<readonly string[]> {
  if (!dial?.error) return [];
  const { destination, tenant, error } = dial;
  const general = [adviceFor(error.code)];
  if (!ROUTING_ERRORS.includes(error.code)) return general;
  const { answers } = await plane.askThese([gateway], (admin, signal) =>
    admin.explain({ destination, tenant }, { signal }),
  );
  const advice = answers[0]?.value.advice ?? [];
  return advice.length > 0 ? advice : general;
}

interface Asked {
  readonly destination: string;
  readonly gateway: Member;
  /** How long to wait for a first byte, in milliseconds. */
  readonly firstByte: number;
}

function dialView(
  { destination, gateway, firstByte }: Asked,
  value: adminApi.DialResponse,
  advice: readonly string[],
): DialView {
  const { dial: record, phases, firstByteMs, ended } = value;
  const error = record?.error;
  const ok = record?.state === adminApi.DialState.DIAL_STATE_ESTABLISHED;
  const silent = ok && firstByte > 0 && firstByteMs === undefined && ended === '';
  return {
    destination,
    gateway: gateway.id,
    ok,
    dial: record?.dialId ?? '',
    trace: record?.traceId ?? '',
    tenant: record?.tenant ?? '',
    agent: record?.agentId ?? '',
    hub: record?.hubId ?? '',
    session: record?.sessionId ?? '',
    ms: record?.ms ?? 0,
    phases: phases.map(phaseView),
    ...(firstByteMs !== undefined && { firstByteMs }),
    ...(silent && { silentMs: firstByte }),
    ...(ended !== '' && { ended }),
    ...(error && { error: { code: error.code, text: error.text, advice } }),
  };
}

function phaseView({ name, depth, startMs, ms, detail }: adminApi.Phase): PhaseView {
  return { name, depth, startMs, ms, detail, failed: /\bfailed\b/.test(detail) };
}
