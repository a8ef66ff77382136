import { until } from '@isthmus/runtime/testing';
import type { Member } from '../../harness/member.ts';
import { check, type Findings, millis, seconds, timedCheck, whole } from '../findings.ts';
import type { Stage } from '../stage.ts';
import type { Phase } from './phase.ts';

/** Dials per second that continue meanwhile. */
const LOAD = 50;

/** How long all agents of a lost hub may take to have their sessions again, in milliseconds. They come spread over 20 s. */
const BACK_WITHIN = 30_000;

/** An agent that lost one of its sessions waits up to this long at least, at random, before it connects again, in milliseconds. */
const STAGGER = 2000;

const COLUMNS = [
  'fault',
  'sessions lost',
  'all back after',
  'most sessions in a second at another hub',
  'dials',
  'failed',
  'slowest',
];

/** The hub does not come back: its agents go to the others. */
export const death: Phase = {
  name: 'death',
  what: 'a hub is killed (SIGKILL) and stays away',
  agents: ({ all }) => all,
  spoils: true,
  run: (stage) => lose(stage, 'hub killed', async () => {}),
};

/** The hub comes back at once, on the same ports and without its sessions. */
export const herd: Phase = {
  name: 'herd',
  what: 'a hub is killed (SIGKILL) and started again',
  agents: ({ herd: agents }) => agents,
  spoils: true,
  run: (stage) => lose(stage, 'hub restarted', (hub) => hub.restart()),
};

async function lose(stage: Stage, fault: string, after: (hub: Member) => Promise<void>): Promise<Findings> {
  const { fleet, hubs } = stage;
  const hub = hubs[0] as Member;
  await fleet.settled();
  const lost = (await fleet.coverage()).sessions.get(hub.id) ?? 0;
  await using load = stage.dialling(LOAD);
  await until(() => load.dials.length >= LOAD, { what: 'a second of dials before the fault' });
  const openedBefore = fleet.opened.length;
  const start = Date.now();
  await hub.program.kill();
  await after(hub);
  await fleet.hasOpened(openedBefore + lost);
  await fleet.complete();
  const opened = fleet.opened.slice(openedBefore);
  const back = Math.max(...opened.map(([at]) => at)) - start;
  await load.stop();
  const { dials } = load;
  const failures = dials.flatMap(({ error = [] }) => error);
  const others = hubs.slice(1).map(({ id }) => peak(opened.filter((each) => each[1] === id).map(([at]) => at)));
  const most = Math.max(...others);
  const bound = Math.ceil(lost / (STAGGER / 1000));
  const row = [
    fault,
    whole(lost),
    seconds(back),
    others.map(whole).join(', '),
    whole(dials.length),
    whole(failures.length),
    millis(Math.max(...dials.map(({ ms }) => ms))),
  ];
  return {
    tables: [{ title: 'Losing a hub', columns: COLUMNS, rows: [row] }],
    checks: [
      check(`${fault}: no dial fails`, failures.length === 0, failures.slice(0, 3).join('; ')),
      timedCheck(`${fault}: all sessions are back within ${BACK_WITHIN / 1000} s`, back <= BACK_WITHIN, seconds(back)),
      timedCheck(
        `${fault}: another hub takes no more than ${whole(bound)} sessions in any second`,
        most <= bound,
        most,
      ),
    ],
  };
}

/** Returns the most moments within any one second. */
function peak(moments: readonly number[]): number {
  const sorted = moments.toSorted((a, b) => a - b);
  let first = 0;
  let most = 0;
  for (const [last, at] of sorted.entries()) {
    while (at - (sorted[first] as number) >= 1000) first++;
    most = Math.max(most, last - first + 1);
  }
  return most;
}
