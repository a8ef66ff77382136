import process from 'node:process';
import { adminApi, valuesOf } from '@isthmus/proto/admin';
import { type Check, VERSION } from '@isthmus/service';
import type { Role } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import { failingDials } from './failing-dials.ts';
import { ADMISSIONS, type Call, dialMessage, invalid, lossMessage, noticeMessage, ROLES } from './messages.ts';
import type { SeenDial } from './recent-dials.ts';

type Names = Pick<adminApi.GetStatusResponse, 'program' | 'memberId' | 'hubId' | 'agentId' | 'zone' | 'plane'>;

/** What a process is. Each name is empty if it does not apply. Dials of its first role are reported first. */
export interface Identity extends Readonly<Names> {
  readonly roles: readonly [Role, ...Role[]];
}

/** Of `dialRates`, in slots: the last seconds, and the last minute. */
const WINDOWS = [1, 6];
export const getStatus: Call<'getStatus'> = async (backend) => {
  const { identity, checks, recent } = backend;
  const all = checks();
  const [first] = identity.roles;
  return {
    ...identity,
    roles: identity.roles.map((role) => ROLES[role]),
    version: VERSION,
    runtime: runtime(),
    startedMs: Math.round(performance.timeOrigin),
    nowMs: Date.now(),
    admission: ADMISSIONS[backend.admission()],
    ready: all.every(({ ok }) => ok),
    checks: all.map((check: Check) => ({ ...check })),
    sessions: backend.sessionCount(),
    tunnels: backend.tunnels().size,
    pendingDials: recent.pending(first),
    parkedDials: recent.parked,
    dialRates: ratesOf(recent, first),
    slowest: slowest(recent.dials(), first).map((dial) => dialMessage(dial)),
    refusals: recent.refusals(),
    notices: backend.notices?.().map(noticeMessage) ?? [],
    losses: recent.losses().map(lossMessage),
    failing: failingDials(recent.dials(), first),
  };
};

function runtime(): string {
  const { deno, node } = process.versions;
  return deno === undefined ? `node ${node}` : `deno ${deno}`;
}

function ratesOf(recent: AdminBackend['recent'], role: Role): adminApi.DialRate[] {
  return WINDOWS.flatMap((slots) => {
    const rate = recent.rate?.(slots);
    if (!rate) return [];
    const { windowMs, dials, failures } = rate;
    const perSecond = (number: number) => (number * 1000) / windowMs;
    const rates = { dialsPerSecond: perSecond(dials), failuresPerSecond: perSecond(failures) };
    return { role: ROLES[role], windowMs, dials, failures, ...rates };
  });
}

function slowest(dials: Iterable<SeenDial>, role: Role): SeenDial[] {
  const since = performance.now() - ADMIN.slowestWithinMs;
  const ms = ({ outcome }: SeenDial) => outcome?.ms ?? 0;
  return [...dials]
    .filter((dial) => dial.role === role && dial.start + ms(dial) >= since)
    .sort((a, b) => ms(b) - ms(a))
    .slice(0, ADMIN.slowestDials);
}

const SOURCES = valuesOf(adminApi.Flag_Source, 'SOURCE');

export const getConfig: Call<'getConfig'> = async ({ identity, flags }) => {
  return { program: identity.program, flags: flags.map((flag) => ({ ...flag, source: SOURCES[flag.source] })) };
};

/** `address:port`, as a socket tells it. */
const REMOTE = /^[\da-fA-F.:%\w]{2,60}:\d{1,5}$/;

export const expectProbe: Call<'expectProbe'> = async ({ recent }, { remote }) => {
  if (!REMOTE.test(remote)) throw invalid('remote: want the address and port that the probe comes from');
  recent.expect(remote);
  return {};
};
