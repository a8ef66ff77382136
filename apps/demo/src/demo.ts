import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTrust } from '@isthmus/certificates/testing';
import { DEMO } from './defaults.ts';
import { startDestination } from './destination.ts';
import { type Child, ChildFailed, type ChildOptions, Fleet } from './fleet.ts';
import { egressSelectorConfiguration, type Running, type Screen, showGuide } from './guide.ts';
import { commandOf, type Part, Ports, singleLayout, splitLayout } from './layout.ts';

export interface DemoOptions {
  /** Two gateways, two hubs, two agents and Redis instead of one server with everything inside. */
  readonly split: boolean;
}

export const USAGE = `Starts a plane on this machine that carries real connections, and shows each dial.

Usage: npm start [-- FLAGS]

  --split   two gateways, two hubs, two agents and Redis, instead of one server and one agent
  --help    this text
`;

/**
 * Reads the command line. Returns undefined if only the usage is asked for.
 * @throws Error with one line that names the argument
 */
export function parseOptions(args: readonly string[]): DemoOptions | undefined {
  const unknown = args.find((arg) => !['--split', '--help', '-h'].includes(arg));
  if (unknown !== undefined) throw new Error(`unknown argument ${unknown}: npm start takes --split and --help`);
  if (args.includes('--help') || args.includes('-h')) return undefined;
  return { split: args.includes('--split') };
}

/** `stop` asks the demo to drain and end; `abandon` does not wait for the drain. */
interface Interrupts {
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
    failures.push(...(await fleet.stop(DEMO.stopMs)));
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
  const trust = await createTrust(dir, 'demo-caller', DEMO.certificateMs);
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
  await redis.until(() => redisAnswers(port), DEMO.readyMs);
  return redis;
}

function optionsOf({ name, program, flags, healthPort }: Part): ChildOptions {
  const list = Object.entries({ ...flags, 'log-format': 'json' }).map(([flag, value]) => `--${flag}=${value}`);
  return { name, command: [...commandOf(program), ...list], ready: () => answersOk(healthPort, '/readyz') };
}

async function allAnswer(running: readonly Running[], path: '/healthz' | '/readyz'): Promise<void> {
  await Promise.all(
    running.map(({ part, child }) => child.until(() => answersOk(part.healthPort, path), DEMO.readyMs)),
  );
}

/** Whether a path on a health port answers 200. */
async function answersOk(port: number, path: '/healthz' | '/readyz'): Promise<boolean> {
  const headers = { connection: 'close' };
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    headers,
    signal: AbortSignal.timeout(DEMO.probeMs),
  });
  await response.arrayBuffer();
  return response.status === 200;
}

/** Whether a Redis answers PING. */
function redisAnswers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    const end = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(DEMO.probeMs, () => end(false));
    socket.once('error', () => end(false));
    socket.once('data', (data) => end(data.toString().startsWith('+PONG')));
  });
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

/** A dial in a gateway's log. */
export interface SeenDial {
  /** Time of day, with milliseconds. */
  readonly time: string;
  readonly caller: string;
  readonly via: string;
  readonly destination: string;
  readonly ms: number;
  readonly agent?: string;
  readonly hub?: string;
  /** Set if it failed: the error's name (RFC 9209) and its text. */
  readonly error?: { readonly name: string; readonly text: string };
}

const MESSAGES = ['dial established', 'dial failed'];

/** Reads a line of a program's JSON log. Returns undefined unless it reports the end of a caller's dial. */
export function readDial(line: string): SeenDial | undefined {
  const fields = readObject(line);
  if (fields?.role !== 'gateway' || !MESSAGES.includes(String(fields.msg))) return undefined;
  const { time, caller, via, destination, ms, agent, hub, error, text } = fields;
  return {
    time: new Date(String(time)).toTimeString().slice(0, 8) + String(time).slice(19, 23),
    caller: String(caller),
    via: String(via),
    destination: String(destination),
    ms: Number(ms),
    ...(typeof agent === 'string' && { agent }),
    ...(typeof hub === 'string' && { hub }),
    ...(error !== undefined && { error: { name: String(error), text: String(text) } }),
  };
}

/** Formats a dial as one line: when, who (by which protocol), where to, through which agent and hub, how long or why not. */
export function dialLine(dial: SeenDial, gateway: string): string {
  const who = `${dial.time}  ${dial.caller} (${dial.via}) at ${gateway} → ${dial.destination}`;
  const through = dial.agent === undefined ? '' : ` through ${dial.agent} at ${dial.hub}`;
  const how = dial.error ? `failed after ${dial.ms} ms: ${dial.error.name}, ${dial.error.text}` : `in ${dial.ms} ms`;
  return `${who}${through} ${how}`;
}

function readObject(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** The order in which programs end: those with callers first, those that the others depend on last. */
const TIERS = { fronts: 0, hubs: 1, agents: 2, redis: 3 } as const;

const NO_REDIS =
  'is not installed. Install it (apt-get install redis-server, dnf install redis, brew install redis), or run npm start without --split.';

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
