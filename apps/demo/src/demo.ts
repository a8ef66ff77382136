import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTrust } from '@isthmus/certificates/testing';
import { type Child, ChildFailed, type ChildOptions } from './child.ts';
import { startDestination } from './destination.ts';
import { dialLine, readDial } from './dials.ts';
import { Fleet } from './fleet.ts';
import { egressSelectorConfiguration, type Running, showGuide } from './guide.ts';
import { type Part, singleLayout, splitLayout } from './layout.ts';
import type { DemoOptions } from './options.ts';
import { Ports } from './ports.ts';
import { answersOk, redisAnswers } from './probes.ts';
import { commandOf } from './programs.ts';
import type { Screen } from './screen.ts';

/** A busy machine starts seven programs slowly. */
const READY_MS = 60_000;
/** Far longer than the programs' own drain time. Who does not want to wait presses Ctrl-C again. */
const STOP_MS = 30_000;
/** The order in which programs end: those with callers first, those that the others depend on last. */
const TIERS = { fronts: 0, hubs: 1, agents: 2, redis: 3 } as const;
/** Long enough that `isthmus check` does not warn about them, in milliseconds. */
const CERTIFICATE_MS = 30 * 86_400_000;
const NO_REDIS =
  'is not installed. Install it (apt-get install redis-server, dnf install redis, brew install redis), or run npm start without --split.';

/** `stop` asks the demo to drain and end; `abandon` does not wait for the drain. */
export interface Interrupts {
  readonly stop: AbortSignal;
  readonly abandon: AbortSignal;
}

/** Runs a plane until it is interrupted or one of its programs fails. Resolves to the exit status. */
export async function runDemo(options: DemoOptions, screen: Screen, interrupts: Interrupts): Promise<number> {
  // mkdtemp makes it readable only by its owner. The path of a unix socket has at most 107 bytes, and the temporary directories of some
  // systems use up half of them.
  const dir = await mkdtemp(join(tmpdir().length > 40 ? '/tmp' : tmpdir(), 'isthmus-demo-'));
  const fleet = new Fleet(Object.keys(TIERS).length);
  const dials = new DialLog(screen);
  const destination = await startDestination();
  const stopped = aborted(interrupts.stop);
  interrupts.abandon.addEventListener('abort', () => fleet.kill());
  const failures: ChildFailed[] = [];
  try {
    const running = bringUp(options, { dir, fleet, dials, screen, destinationPort: destination.port });
    await Promise.race([fleet.death, stopped, running.then(() => stopped)]);
    screen.faint('\nDraining ...');
  } catch (error) {
    if (!(error instanceof ChildFailed)) throw error;
    failures.push(error);
  } finally {
    failures.push(...(await fleet.stop(STOP_MS)));
    await destination[Symbol.asyncDispose]();
    await rm(dir, { recursive: true, force: true });
  }
  for (const failure of failures) showFailure(screen, failure);
  screen.line(dials.closingLine);
  return failures.length > 0 ? 1 : 0;
}

interface Stage {
  readonly dir: string;
  readonly fleet: Fleet;
  readonly dials: DialLog;
  readonly screen: Screen;
  readonly destinationPort: number;
}

/** Starts everything, waits until a dial would succeed, and prints what to do with it. */
async function bringUp({ split }: DemoOptions, stage: Stage): Promise<void> {
  const { dir, fleet, dials, screen, destinationPort } = stage;
  screen.faint(`Starting ${split ? 'two gateways, two hubs, two agents and Redis' : 'a server and an agent'} ...`);
  const trust = await createTrust(dir, 'demo-caller', CERTIFICATE_MS);
  const layout = await (split ? splitLayout : singleLayout)(trust, new Ports());
  const redis = layout.redisPort === undefined ? undefined : await startRedis(fleet, layout.redisPort, dir);
  const fronts = layout.fronts.map((part) => {
    const onLine = (line: string) => dials.read(line, part.name);
    return { part, child: fleet.start(TIERS.fronts, { ...optionsOf(part), onLine }) };
  });
  const hubs = layout.hubs.map((part) => ({ part, child: fleet.start(TIERS.hubs, optionsOf(part)) }));
  await allAnswer([...fronts, ...hubs], '/healthz');
  const agents = layout.agents.map((part) => ({ part, child: fleet.start(TIERS.agents, optionsOf(part)) }));
  await allAnswer([...agents, ...fronts, ...hubs], '/readyz');
  const egressFile = join(dir, 'egress-selector.yaml');
  await writeFile(egressFile, egressSelectorConfiguration(layout));
  const running = [...fronts, ...hubs, ...agents];
  showGuide(screen, { layout, running, trust, egressFile, destinationPort, ...(redis && { redis }) });
  fleet.revive({
    died: ({ message }) => screen.bad(`${message}: it is started again`),
    back: ({ name, pid }) => screen.good(`${name} is ready again, as pid ${pid}`),
  });
}

async function startRedis(fleet: Fleet, port: number, dir: string): Promise<Child> {
  const args = ['--bind', '127.0.0.1', '--port', String(port), '--dir', dir, '--save', '', '--appendonly', 'no'];
  const redis = fleet.start(TIERS.redis, {
    name: 'redis-server',
    command: ['redis-server', ...args],
    missing: NO_REDIS,
    ready: () => redisAnswers(port),
  });
  await redis.until(() => redisAnswers(port), READY_MS);
  return redis;
}

function optionsOf({ name, program, flags, healthPort }: Part): ChildOptions {
  const list = Object.entries({ ...flags, 'log-format': 'json' }).map(([flag, value]) => `--${flag}=${value}`);
  return { name, command: [...commandOf(program), ...list], ready: () => answersOk(healthPort, '/readyz') };
}

async function allAnswer(running: readonly Running[], path: '/healthz' | '/readyz'): Promise<void> {
  await Promise.all(running.map(({ part, child }) => child.until(() => answersOk(part.healthPort, path), READY_MS)));
}

function showFailure(screen: Screen, { message, lastLines }: ChildFailed): void {
  screen.bad(`\n${message}`);
  if (lastLines.length > 0) screen.line(`It said last:\n  ${lastLines.join('\n  ')}`);
}

/** Prints and counts the dials in the logs of the fronts. */
class DialLog {
  readonly #screen: Screen;
  #carried = 0;
  #failed = 0;

  constructor(screen: Screen) {
    this.#screen = screen;
  }

  read(line: string, gateway: string): void {
    const dial = readDial(line);
    if (dial === undefined) return;
    if (dial.error) {
      this.#failed++;
      this.#screen.bad(dialLine(dial, gateway));
    } else {
      this.#carried++;
      this.#screen.line(dialLine(dial, gateway));
    }
  }

  get closingLine(): string {
    return `Ended. Dials that became tunnels: ${this.#carried}; dials that failed: ${this.#failed}.`;
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
