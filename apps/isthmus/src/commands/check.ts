import timers from 'node:timers/promises';
import { agentName, CHECKS, judge, OWN_HEALTH_PORT, ofDial, type Result, reportOf } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { socketPathOf } from '@isthmus/runtime';
import { formatDestination } from '@isthmus/tunnel';
import { Option } from 'commander';
import { type Call, command, durationOption, hostPort, listOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { EXIT, Failure, plural, type Style, verdictsText } from '../output.ts';
import { type Asked, askPlane, fewAtOnce, type SessionView, sessionViews, withClocks } from '../plane/evidence.ts';
import type { Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import { checkFiles, FILE_OPTIONS, type FileOptions } from './check-files.ts';
import { checkPorts, checkRedis, checkSocket, type HubPorts, REDIS_OPTIONS, type RedisOptions } from './check-ports.ts';

interface Options extends FileOptions, RedisOptions {
  readonly host: readonly string[];
  readonly udsName?: string;
  readonly destination?: string;
  readonly within: number;
  readonly dials: boolean;
  readonly wait?: number;
}

const WIDTH = Math.max(...Object.keys(CHECKS).map((name) => name.length));

const looksAt = Object.entries(CHECKS)
  .map(([name, about]) => `  ${name.padEnd(WIDTH)}  ${about}`)
  .join('\n');

export const check = command({
  name: 'check',
  summary: 'Look for problems, present and coming: before a start or an upgrade, or when something fails',
  details: `Checks a running plane, and files, a socket and Redis if you name them, with the flags of the programs. Exits with 1 if a check fails.\n\n${looksAt}\n\nEach line that is not ok says what to do, and names a section of docs/OPERATE.md.`,
  options: [
    ...FILE_OPTIONS,
    listOption(
      '--host <names>',
      'names that others use to reach the servers with these files, and hubs without --advertise-agent-address',
      [],
      {
        shown: 'not checked',
      },
    ),
    new Option('--uds-name <path>', 'as for the programs: does a server listen there, where an API server finds it?'),
    ...REDIS_OPTIONS,
    new Option(
      '--destination <host:port>',
      "destination to dial through each agent, instead of the agent's own health port",
    ).argParser(hostPort),
    durationOption('--within <duration>', 'how long each dial may take', ISTHMUS.checkDialMs),
    new Option('--no-dials', 'dial nothing'),
    durationOption('--wait <duration>', 'check again for up to this long, until no check fails'),
  ],
  examples: {
    check: 'a running plane',
    'check --wait 5m': 'after an installation: until it is well',
    'check --redis-url redis://10.0.0.9 --peer-cert peer.pem --peer-key peer-key.pem --peer-ca-cert ca.pem':
      'before the first start',
    'check --uds-name /run/konnectivity/konnectivity-server.socket':
      "in the server's container: can an API server find it?",
    'check --destination 10.20.3.4:10250': 'does every agent reach this kubelet?',
  },
  async run(call: Call<Options>) {
    const { options, output, terminal } = call;
    const end = performance.now() + (options.wait ?? 0);
    for (;;) {
      const left = () => performance.now() < end && !terminal.interrupted.aborted;
      const view = await checked(call).catch((error: unknown) => {
        if (left() && error instanceof Failure && error.status === EXIT.unasked) return undefined;
        throw error;
      });
      if (view && (view.failed === 0 || !left())) {
        output.show(view, checkText);
        return view.failed > 0 ? EXIT.wrong : EXIT.good;
      }
      await timers.setTimeout(ISTHMUS.checkAgainMs, undefined, { signal: terminal.interrupted }).catch(() => {});
      if (view) await (await call.plane()).meet().catch(() => {});
    }
  },
});

async function checked({ options, plane: meet }: Call<Options>) {
  const plane = await meet().catch((error: unknown) => {
    if (error instanceof Failure && error.status === EXIT.unasked) return error;
    throw error;
  });
  const asked = plane instanceof Failure ? undefined : askPlane(plane, options.tenant, true);
  const redis = checkRedis(options);
  const [{ results }, socket, ofPlane] = await Promise.all([
    redis,
    checkSocket(options.udsName),
    asked && checkPlane(plane as Plane, asked, options, redis),
  ]);
  const named = [...checkFiles(options, options.host, (await asked)?.evidence.now), ...socket, ...results];
  if (ofPlane) return checkView([...named, ...ofPlane]);
  // A plane that is not running yet is one result among others.
  if (named.length === 0) throw plane;
  const { message } = plane as Failure;
  return checkView([...named, reportOf('members').warn('the plane', message, 'start it, then check again')]);
}

async function checkPlane(
  plane: Plane,
  asked: Promise<Asked>,
  options: Options & { readonly timeout: number; readonly tenant: string },
  ofRedis: ReturnType<typeof checkRedis>,
): Promise<Result[]> {
  const probing = {
    timeoutMs: options.timeout,
    now: async () => (await asked).evidence.now,
    announce: announcer(plane),
    agentPortOf: (hub: adminApi.Hub) => withAgentPort(plane, hub, options.host),
    apiServers: async () => apiServersOf(await asked),
  };
  const more = asked.then(({ evidence, tookMs }) => {
    const others = evidence.hubs.filter(({ hubId }) => plane.hubs.every((hub) => hub.hubId !== hubId));
    return Promise.all([
      withClocks(plane, evidence, options.timeout, tookMs),
      checkPorts(others, options, probing),
      options.dials ? checkDials(plane, sessionViews(evidence.sessions), options) : [],
    ]);
  });
  // What hangs is waited for once: its ports are looked at while it is asked.
  const all = await Promise.all([more, ofRedis, checkPorts(plane.hubs, options, probing)]);
  const [[evidence, otherPorts, dials], { aheadMs }, ports] = all;
  const redis = aheadMs === undefined ? [] : [{ of: 'redis', aheadMs }];
  const judged = judge({ ...evidence, clocks: [...evidence.clocks, ...redis] });
  const results = [...judged, ...ports, ...otherPorts, ...dials];
  const order = Object.keys(CHECKS);
  return results.sort((a, b) => order.indexOf(a.check) - order.indexOf(b.check));
}

/** Tells hubs where a probe comes from. One that cannot be told says in its log that it refused somebody. */
function announcer(plane: Plane): (hubId: string, remote: string) => Promise<void> {
  return async (hubId, remote) => {
    await plane.ask('expectProbe', { remote }, { members: plane.members.filter(({ id }) => id === hubId) });
  };
}

/** The names of API servers, and whose they are: of tenants' files, or of hubs' flags. */
function apiServersOf({ evidence, configs }: Asked): Map<string, string> {
  const ofFiles = evidence.members.flatMap(({ tenants }) => tenants?.tenants ?? []);
  const ofFlags = configs.answers.flatMap(({ value }) => value.flags.filter(({ name }) => name === 'api-server-name'));
  const names = ofFlags.flatMap(({ value }) => value.match(/[^[\],]+/g) ?? []);
  return new Map([
    ...names.map((name) => [name, DEFAULT_TENANT] as const),
    ...ofFiles.flatMap(({ name: tenant, apiServerNames }) => apiServerNames.map((name) => [name, tenant] as const)),
  ]);
}

const DEFAULT_TENANT = 'default';

/**
 * A hub that agents know by a balancer's address alone is looked at where it listens. That is no name by which agents reach it, so its
 * certificate must have those of --host, or any.
 */
async function withAgentPort(plane: Plane, hub: adminApi.Hub, agentNames: readonly string[]): Promise<HubPorts> {
  const member = plane.members.find(({ id }) => id === hub.hubId);
  // A hub that only links tell of has no admin port that is known.
  if (hub.agentAddress !== '' || !member || member.address === '') return hub;
  const { answers } = await plane.ask('getConfig', {}, { members: [member] });
  const flag = (name: string) => answers[0]?.value.flags.find((each) => each.name === name)?.value ?? '';
  const [bound, port] = [flag('agent-bind-address'), Number(flag('agent-port'))];
  if (port === 0) return hub;
  const everywhere = ['', '0.0.0.0', '::'].includes(bound);
  // At a unix socket, it is this machine.
  const host = socketPathOf(member.address) === undefined ? member.address.replace(/:\d+$/, '') : '127.0.0.1';
  const agentAddress = everywhere ? `${host}:${port}` : formatDestination({ host: bound, port });
  return { ...hub, agentAddress, agentNames };
}

type DialsOptions = Pick<Options, 'destination' | 'within'>;

const report = reportOf('dials');

/** Does one real dial through each agent, with the gateways taking turns. */
async function checkDials(plane: Plane, sessions: readonly SessionView[], options: DialsOptions): Promise<Result[]> {
  const gateways = plane.answering.filter(({ roles }) => roles.includes('gateway'));
  const agents = [...new Map(sessions.map((each) => [JSON.stringify([each.tenant, each.agent]), each])).values()];
  const usable = agents.filter(({ quarantined }) => quarantined === undefined);
  if (gateways.length === 0 || usable.length === 0) return [];
  return await fewAtOnce(usable, (agent, index) =>
    dialThrough(plane, gateways[index % gateways.length] as Member, agent, options),
  );
}

async function dialThrough(
  plane: Plane,
  gateway: Member,
  { agent, tenant }: SessionView,
  { destination = OWN_HEALTH_PORT, within }: DialsOptions,
): Promise<Result> {
  const name = agentName(tenant, agent);
  const about = `${gateway.id} through ${name} to ${destination}`;
  const request = { destination, tenant, agentId: agent, timeoutMs: within };
  const whom = { members: [gateway], timeoutMs: within + ISTHMUS.dialAnswerMs };
  const { answers, unanswered } = await plane.ask('dial', request, whom);
  const record = answers[0]?.value.dial;
  if (!record)
    return report.fail(
      about,
      `could not be tried: ${unanswered.at(-1)?.reason}`,
      `isthmus dial ${destination} --agent ${agent} --tenant ${tenant}`,
    );
  return ofDial(gateway.id, name, destination, record);
}

export function checkView(results: readonly Result[]) {
  const count = (outcome: Result['outcome']) => results.filter((result) => result.outcome === outcome).length;
  return { results, passed: count('pass'), warned: count('warn'), failed: count('fail') };
}

export function checkText({ results, passed, warned, failed }: ReturnType<typeof checkView>, style: Style): string {
  const lines = results.map(({ check: name, about, outcome, detail, todo, docs }) => {
    return { name, outcome, detail: `${about}: ${detail}`, ...(todo !== undefined && { todo: `${todo} (${docs})` }) };
  });
  const sum = `${plural(results.length, 'check')}: ${passed} passed, ${warned} warned, ${failed} failed`;
  return `${verdictsText(lines, style)}\n${failed > 0 ? style.bad(sum) : style.good(sum)}\n`;
}
