import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allInOne,
  type Destination,
  echo,
  type Front,
  grpcThrough,
  type Program,
  ROOT,
  Scope,
  sharedByFile,
  split,
  tempDir,
  tunnelThrough,
  until,
  within,
} from '../harness/index.ts';
import ceilings from './ceilings.json' with { type: 'json' };
import { type Counted, countFile } from './counter.ts';

type Protocol = keyof typeof ceilings.dials;
type Counter = keyof Counted;

/** Programs are warm after these. */
const WARM_DIALS = 40;
/** Few enough that most rounds are over before the program's own upkeep adds to them: in a second, it is up to 4 % of these dials. */
const ROUND_DIALS = 5;
/** Each dial is alone on its links, on a slow machine as on a fast one: an end of a stream waits 10 ms for other frames, then leaves alone. */
const ALONE_MS = 25;
/**
 * How much more than its ceiling a program may do. The lowest of some rounds differs by 1 % of the calls between a quiet machine and one at
 * load 20, of gRPC by 2 %: there, what arrives is read in more pieces. Where dials are slow, timers that several share run for each alone.
 */
function withMargin({ calls, promises, timers, ticks }: Counted): Counted {
  return { calls: Math.floor(1.03 * calls), promises, timers: timers + 1, ticks: ticks + 1 };
}

/** How long rounds are counted, in milliseconds. One that is low enough ends the test, after half a second on a quiet machine. */
const ROUNDS_MS = 40_000;
/** Counts are of the Node that is shipped: Node's own functions are two thirds of the calls. */
const PINNED = readFileSync(join(ROOT, '.node-version'), 'utf8').trim();
const skip = process.versions.node.split('.')[0] !== PINNED.split('.')[0] && `counts are of Node ${PINNED}`;

interface Rig {
  readonly scope: Scope;
  readonly directory: string;
  readonly front: Front;
  readonly target: Destination;
  /** Those whose steps are counted here, by the name that they have in `ceilings.json`. */
  readonly programs: Readonly<Record<string, Program>>;
  /** How often they were counted. */
  counts: number;
}

const pair = sharedByFile(async (scope) => {
  const { directory, env } = await counting(scope);
  const { server, agents } = await allInOne(scope, { env });
  const programs = { server: server.program, agent: agents[0] as Program };
  return rig(scope, directory, server, programs);
});

const apart = sharedByFile(async (scope) => {
  const { directory, env } = await counting(scope);
  const plane = await split(scope, { env, gateways: 1, hubs: 1 });
  const [front, hub] = [plane.gateways[0] as Front, plane.hubs[0]];
  return rig(scope, directory, front, { gateway: front.program, hub: hub?.program as Program });
});

async function counting(scope: Scope) {
  const directory = await tempDir(scope);
  const preload = new URL('./counter.ts', import.meta.url).href;
  return { directory, env: { NODE_OPTIONS: `--use-openssl-ca --import=${preload}`, STEPS_DIR: directory } };
}

async function rig(scope: Scope, directory: string, front: Front, programs: Rig['programs']): Promise<Rig> {
  return { scope, directory, front, programs, target: await echo(scope), counts: 0 };
}

/** Opens a tunnel, sends a byte there and back, and ends it in order. */
async function dial({ front, target }: Rig, protocol: Protocol): Promise<void> {
  await using scope = new Scope();
  const { authority: destination } = target;
  const tunnel: Duplex =
    protocol === 'grpc'
      ? await grpcThrough(scope, front.grpc, destination)
      : await tunnelThrough(scope, { via: front.connect, destination });
  const ended = once(tunnel, 'end');
  const echoed = once(tunnel, 'data');
  tunnel.resume().write('x');
  await within(echoed, 'the byte that comes back');
  tunnel.end();
  await within(ended, "the tunnel's end");
  await until(() => target.open === 0, "the destination's end");
  await sleep(ALONE_MS);
}

/** What each program has done since the last count. */
async function take(rig: Rig): Promise<[string, Counted][]> {
  const n = rig.counts++;
  const programs = Object.entries(rig.programs);
  for (const [, program] of programs) program.signal('SIGUSR2');
  return Promise.all(
    programs.map(async ([name, program]): Promise<[string, Counted]> => {
      const file = countFile(rig.directory, program.pid, n);
      await until(() => existsSync(file), { what: `a count of ${program.name}`, every: 5 });
      return [name, JSON.parse(readFileSync(file, 'utf8')) as Counted];
    }),
  );
}

/** Counts rounds until each figure was at its ceiling once, because all else that a program does only adds. Resolves with the lowest ones. */
async function lowest(rig: Rig, protocol: Protocol, allowed: Readonly<Record<string, Counted>>) {
  const least: Record<string, Counted> = {};
  const round = async () => {
    for (let i = 0; i < ROUND_DIALS; i++) await dial(rig, protocol);
    for (const [name, counted] of await take(rig)) {
      least[name] ??= { calls: Infinity, promises: Infinity, timers: Infinity, ticks: Infinity };
      const all = least[name];
      for (const key of Object.keys(counted) as Counter[])
        all[key] = Math.min(all[key], Math.round(counted[key] / ROUND_DIALS));
    }
    return Object.entries(allowed).every(([name, ceiling]) => isWithin(least[name], ceiling));
  };
  for (let i = 0; i < WARM_DIALS; i++) await dial(rig, protocol);
  await take(rig);
  await until(round, { every: 0, deadline: ROUNDS_MS }).catch(() => {});
  return least;
}

function isWithin(counted: Counted | undefined, ceiling: Counted): boolean {
  return (Object.keys(ceiling) as Counter[]).every((key) => (counted?.[key] ?? Infinity) <= ceiling[key]);
}

describe('A warm dial stays below the ceilings of ceilings.json', { skip }, () => {
  for (const [shape, start] of Object.entries({ pair, apart }))
    for (const protocol of ['connect', 'grpc'] as const)
      test(`${shape}, by ${protocol}`, async (context) => {
        const rig = await start();
        const ceiling: Readonly<Record<string, Counted>> = ceilings.dials[protocol];
        const allowed = Object.fromEntries(
          Object.keys(rig.programs).map((name) => [name, withMargin(ceiling[name] as Counted)]),
        );
        const counted = await lowest(rig, protocol, allowed);
        context.diagnostic(JSON.stringify(counted));
        for (const [name, most] of Object.entries(allowed))
          assert.ok(
            isWithin(counted[name], most),
            `${name}: ${JSON.stringify(counted[name])} is more than ${JSON.stringify(most)}`,
          );
      });
});
