import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import {
  AS_IN_IMAGE,
  agentMember,
  type ControlGroup,
  controlGroup,
  controlGroupMissing,
  goMissing,
  holdMember,
  Member,
  type MemberSettings,
  newTrust,
  peer,
  type Scope,
  scoped,
  serverMember,
  type Trust,
  unlessBundled,
  unlessSlow,
  until,
  uplinkFlags,
  type Ways,
} from '../harness/index.ts';
import { listening } from '../rig/child.ts';
import { Control } from '../rig/load/control.ts';
import { Flow } from '../rig/load/flow.ts';
import { header } from '../rig/load/modes.ts';
import { STANDING, Tunnels } from '../rig/load/tunnels.ts';
import { beginPhase, Dialler, stopAll } from '../rig/load/workers.ts';

const MIB = 1024 * 1024;

/** Callers use CONNECT or gRPC at the server, or CONNECT at `isthmus hold` beside it. */
type Callers = 'connect' | 'grpc' | 'hold';

/** The memory of each process, in bytes. `isthmus hold` has as much as the server. */
type Sizes = Readonly<Record<'server' | 'agent', number>>;

/** What README.md, the pages and the manifests give at least. */
const LEAST: Sizes = { server: 128 * MIB, agent: 48 * MIB };
/** What a pair needs for all of it in turn, and for uploads by gRPC beside idle tunnels. */
const MORE: Sizes = { server: 192 * MIB, agent: 64 * MIB };
/** What it needs if all idle tunnels fill. */
const LATER: Sizes = { server: LEAST.server, agent: MORE.agent };
/** What it needs for all of it at once. */
const ALL: Sizes = { server: 256 * MIB, agent: 192 * MIB };
/** What it needs for both directions at once, without idle tunnels. */
const BOTH: Sizes = { server: LEAST.server, agent: ALL.agent };

const DIALS = 4000;
const DIALS_AT_ONCE = 8;
const TRANSFERS = 200;
/** Of each transfer. */
const KIB = 2048;
/** Tunnels that carry nothing, beside everything else. */
const IDLE = 500;
/** Idle tunnels that carry so much each later, all at once, after nobody has read for a while. */
const LATER_KIB = 512;
const STALLED_MS = 5000;
/** So many of the transfers read slowly, and so many beside them not at all. */
const SLOW = 20;
const STANDING_STILL = 10;
const SLOW_BYTES_PER_MS = 500;
/** A row may take as long as something moves: slower is allowed. In milliseconds. */
const STILL_MS = 30_000;
const LONGEST_MS = 600_000;
const MOVES_EVERY_MS = 100;
const LOOK_EVERY_MS = 20;

interface Rig {
  readonly tunnels: Tunnels;
  readonly control: Control;
  /** Tunnels, which go with the rig. */
  readonly open: Duplex[];
  readonly groups: Readonly<Record<string, ControlGroup>>;
}

/** As the harness' `agentMember`, with upstream's agent. */
async function goAgentMember(scope: Scope, trust: Trust, id: string, port: number, settings: MemberSettings = {}) {
  const { healthPort, ...flags } = await uplinkFlags(trust, port);
  return new Member(scope, { id, runs: [await peer(), 'agent'], flags, healthPort, ...settings });
}

async function rig(scope: Scope, callers: Callers, sizes: Sizes, startAgent: typeof agentMember): Promise<Rig> {
  const groups = { server: controlGroup(scope, sizes.server), agent: controlGroup(scope, sizes.agent) };
  const trust = await newTrust(scope);
  const env = AS_IN_IMAGE;
  const { member: server, agentPort, ways } = await serverMember(scope, trust, 'server', { env, place: groups.server });
  const agent = await startAgent(scope, trust, 'agent', agentPort, { env, place: groups.agent });
  await Promise.all([server, agent].map(({ program }) => program.waitReady()));
  const { port } = await listening(scope, 'rig/load/destination.ts');
  const hold = callers === 'hold' ? controlGroup(scope, sizes.server) : undefined;
  const door = hold ? await throughHold(scope, trust, ways, hold) : ways;
  const protocol = callers === 'hold' ? 'connect' : callers;
  const tunnels = new Tunnels([{ kind: 'door', door, protocol }], port);
  const control = await Control.connect(port);
  scope.defer(() => control.end());
  const open: Duplex[] = [];
  scope.defer(() => {
    for (const tunnel of open) tunnel.destroy();
  });
  return { tunnels, control, open, groups: { ...groups, ...(hold && { hold }) } };
}

async function throughHold(scope: Scope, trust: Trust, gateway: Ways, place: ControlGroup): Promise<Ways> {
  const { member, ways } = await holdMember(scope, trust, [gateway], {}, { env: AS_IN_IMAGE, place });
  await member.program.waitReady();
  return ways;
}

type Work = (rig: Rig) => Promise<void>;

/** Waits for a condition for as long as a count moves. */
async function moving(is: () => boolean | Promise<boolean>, count: () => number, what: () => string): Promise<void> {
  let [last, at] = [count(), performance.now()];
  const hopeless = () => {
    const now = count();
    if (now !== last) [last, at] = [now, performance.now()];
    return performance.now() - at > STILL_MS ? 'nothing moves any more' : undefined;
  };
  await until(is, { what, hopeless, deadline: LONGEST_MS, every: MOVES_EVERY_MS });
}

/** Waits for what flows do, for as long as their bytes move. */
async function moved<T>(flows: readonly Flow[], work: readonly Promise<T>[]): Promise<T[]> {
  let over = false;
  const all = Promise.all(work).finally(() => {
    over = true;
  });
  const bytes = () => flows.map((flow) => `${flow.bytes}${flow.corrupt ? ' corrupt' : ''}`);
  const sum = () => flows.reduce((total, flow) => total + flow.bytes, 0);
  await Promise.race([
    all,
    moving(
      () => over,
      sum,
      () => `bytes of each: ${bytes()}`,
    ),
  ]);
  return await all;
}

async function dials({ tunnels }: Rig): Promise<void> {
  const workers = Array.from({ length: DIALS_AT_ONCE }, () => new Dialler(tunnels));
  const phase = beginPhase(workers);
  const made = () => phase.samples.cycle.length;
  await moving(
    () => phase.failures > 0 || made() >= DIALS,
    made,
    () => `${made()} dials`,
  );
  await stopAll(workers);
  assert.equal(phase.failures, 0, 'dials failed');
}

async function downloads(rig: Rig): Promise<void> {
  // Nobody reads these.
  for (const tunnel of await opened(rig, STANDING_STILL)) tunnel.write(header('source', rig.control.newId()));
  await readDownloads(rig);
}

async function readDownloads(rig: Rig): Promise<void> {
  const { control } = rig;
  const flows = (await opened(rig, TRANSFERS)).map((tunnel) => new Flow(tunnel, control.newId()));
  const fetched = flows.map((flow) => flow.fetch(KIB));
  for (const { tunnel } of flows.slice(0, SLOW)) readSlowly(tunnel);
  const whole = await moved(flows, fetched);
  assert.equal(whole.filter((each) => each).length, TRANSFERS, 'whole downloads');
}

async function uploads(rig: Rig): Promise<void> {
  for (const tunnel of await opened(rig, STANDING_STILL)) new Flow(tunnel, rig.control.newId()).upload('stall');
  await readUploads(rig);
}

async function readUploads(rig: Rig): Promise<void> {
  const { control } = rig;
  const flows = (await opened(rig, TRANSFERS)).map((tunnel) => new Flow(tunnel, control.newId()));
  const sent = flows.map((flow, index) => flow.send(KIB, index < SLOW ? SLOW_BYTES_PER_MS : 0));
  await moved(flows, sent);
  let arrived: number[] = [];
  const whole = async () => {
    arrived = (await Promise.all(flows.map(({ id }) => control.ask({ id })))).map(({ bytes, corrupt }) =>
      corrupt ? -1 : bytes,
    );
    return arrived.every((bytes) => bytes === KIB * 1024);
  };
  const sum = () => arrived.reduce((total, bytes) => total + bytes, 0);
  await moving(whole, sum, () => `bytes of each: ${arrived}`);
}

/** Tunnels that were opened idle all fill at once. Nobody reads at first, and then everybody. */
async function downloadsLater(rig: Rig): Promise<void> {
  const id = rig.control.newId();
  const flows = (await opened(rig, IDLE)).map((tunnel) => new Flow(tunnel, id));
  const fetched = flows.map((flow) => flow.fetch(LATER_KIB));
  for (const { tunnel } of flows) tunnel.pause();
  await pause(STALLED_MS);
  for (const { tunnel } of flows) tunnel.resume();
  const whole = await moved(flows, fetched);
  assert.equal(whole.filter((each) => each).length, IDLE, 'whole downloads');
}

/** The same with destinations that read nothing. */
async function uploadsLater(rig: Rig): Promise<void> {
  const { control } = rig;
  const id = control.newId();
  const flows = (await opened(rig, IDLE)).map((tunnel) => new Flow(tunnel, id));
  const sent = flows.map((flow) => flow.send(LATER_KIB, 0, 'stall'));
  await pause(STALLED_MS);
  await control.ask({ act: 'release' });
  await moved(flows, sent);
  let arrived = { bytes: 0, corrupt: false };
  const whole = async () => {
    arrived = await control.ask({ id });
    return arrived.bytes === IDLE * LATER_KIB * 1024;
  };
  await moving(
    whole,
    () => arrived.bytes,
    () => JSON.stringify(arrived),
  );
  assert.equal(arrived.corrupt, false, 'other bytes');
}

/** Different work at the same time. */
function atOnce(...works: readonly Work[]): Work {
  return async (rig) => {
    await Promise.all(works.map((work) => work(rig)));
  };
}

/** Beside tunnels that carry nothing. */
function besideIdle(...works: readonly Work[]): Work {
  return async (rig) => {
    await opened(rig, IDLE);
    for (const work of works) await work(rig);
  };
}

async function opened({ tunnels, open }: Rig, count: number): Promise<Duplex[]> {
  const all = await tunnels.openMany(count, { window: STANDING });
  open.push(...all);
  assert.equal(all.length, count, `tunnels: ${JSON.stringify(tunnels.errors)}`);
  return all;
}

function readSlowly(tunnel: Duplex): void {
  tunnel.on('data', ({ length }: Buffer) => {
    tunnel.pause();
    setTimeout(() => tunnel.resume(), length / SLOW_BYTES_PER_MS);
  });
}

/** What one pair does. Tunnels of a Go agent share one window, so those that nobody reads would hold up all others until they are ended. */
const ROWS: readonly (readonly [Callers, string, Work, sizes?: Sizes, agent?: 'our' | 'Go'])[] = [
  ['connect', '4,000 dials, 8 at a time', dials],
  ['connect', '200 downloads beside 500 idle tunnels', besideIdle(downloads)],
  ['connect', '200 uploads beside 500 idle tunnels', besideIdle(uploads)],
  ['connect', 'all of it in turn beside 500 idle tunnels', besideIdle(dials, downloads, uploads), MORE],
  ['connect', 'all of it at once beside 500 idle tunnels', besideIdle(atOnce(dials, downloads, uploads)), ALL],
  ['grpc', '4,000 dials, 8 at a time', dials],
  ['grpc', '200 downloads beside 500 idle tunnels', besideIdle(downloads)],
  ['grpc', '200 uploads', uploads],
  ['grpc', '200 uploads beside 500 idle tunnels', besideIdle(uploads), MORE],
  ['grpc', '200 downloads and 200 uploads at once', atOnce(downloads, uploads), BOTH],
  ['grpc', '200 downloads and 200 uploads at once', atOnce(readDownloads, readUploads), BOTH, 'Go'],
  ['grpc', 'all of it at once beside 500 idle tunnels', besideIdle(atOnce(dials, downloads, uploads)), ALL],
  ...(['connect', 'grpc', 'hold'] as const).flatMap((callers) => [
    [callers, 'downloads of 500 tunnels that were idle, which nobody reads at first', downloadsLater, LATER] as const,
    [callers, 'uploads of 500 tunnels that were idle, which nobody reads at first', uploadsLater, LATER] as const,
  ]),
];

for (const [callers, what, work, sizes = LEAST, make = 'our'] of ROWS) {
  test(
    `by ${callers}, ${make} agent in ${sizes.agent / MIB} MiB and a server in ${sizes.server / MIB} MiB live through ${what}`,
    { skip: unlessSlow() || unlessBundled() || controlGroupMissing() || (make === 'Go' && goMissing()) },
    scoped(async (scope, context) => {
      const made = await rig(scope, callers, sizes, make === 'Go' ? goAgentMember : agentMember);
      const peaks = watched(scope, made);
      const began = performance.now();
      try {
        await work(made);
      } finally {
        context.diagnostic(
          `${((performance.now() - began) / 1000).toFixed(1)} s; own MiB at most: ${JSON.stringify(peaks)}`,
        );
        const killed = Object.entries(made.groups).filter(([, group]) => group.kills > 0);
        assert.deepEqual(
          killed.map(([name]) => name),
          [],
          'killed for lack of memory',
        );
      }
      assert.deepEqual(made.tunnels.errors, {});
    }),
  );
}

/** The most that each process had of its own, in MiB, looked at now and then. */
function watched(scope: Scope, { groups }: Rig): Record<string, number> {
  const most: Record<string, number> = {};
  const look = () => {
    for (const [name, { ownBytes }] of Object.entries(groups))
      most[name] = Math.max(most[name] ?? 0, Math.round(ownBytes / MIB));
  };
  const timer = setInterval(look, LOOK_EVERY_MS);
  scope.defer(() => clearInterval(timer));
  return most;
}
