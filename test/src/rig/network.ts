import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { goMissing, goProgram, isAlive, killChild, type Scope, within } from '../harness/index.ts';

const run = promisify(execFile);
const NAMESPACES = '/run/netns';
const PREFIX = 'isthmus-chaos-';

/** Returns why processes cannot have their own networks here, tried with such settings; false if they can. */
export function networksMissing(settings: readonly string[] = []): string | false {
  if (process.platform !== 'linux') return 'network namespaces need Linux';
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  const [program, ...args] = inOwn('true', settings);
  const { status, error, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  return status !== 0 && `network namespaces need more than this: ${error?.message ?? stderr.trim()}`;
}

/** A command for sh, in a network of its own with such settings, as sysctl(8) takes them. */
function inOwn(command: string, settings: readonly string[]): [string, ...string[]] {
  const made = ['ip link set lo up', ...settings.map((each) => `sysctl -qw '${each}'`), command].join(' && ');
  return ['unshare', '--net', 'sh', '-c', made, 'sh'];
}

/** One of a namespace's ways to the outside: its own bridge. */
export interface Wire {
  /** The address of the namespace on this wire. */
  readonly inside: string;
  /** The address of this machine on this wire. */
  readonly outside: string;
  /** Takes the namespace's port off the bridge: every packet vanishes in both directions, and nobody is notified. */
  cut(): Promise<void>;
  mend(): Promise<void>;
  /** How many have passed so far, in both directions. */
  packets(): number;
}

/** A network namespace. */
export interface Namespace<T extends string> {
  readonly name: string;
  /** Runs another command there. */
  readonly command: readonly [string, ...string[]];
  wire(of: T): Wire;
}

/** Makes a namespace with one bridge per wire. All of it is removed with the scope; leftovers of dead processes are removed first. */
export async function namespace<T extends string>(scope: Scope, wires: readonly T[]): Promise<Namespace<T>> {
  await removeLeftOvers();
  const name = `${PREFIX}${process.pid}`;
  await ip('netns', 'add', name);
  scope.defer(() => ip('netns', 'del', name));
  await ip('-n', name, 'link', 'set', 'lo', 'up');
  const made = new Map<T, Wire>();
  for (const [index, wire] of wires.entries()) made.set(wire, await stretch(scope, name, index));
  return { name, command: ['ip', 'netns', 'exec', name], wire: (of: T) => made.get(of) as Wire };
}

/**
 * Runs a program of the rigs again, with the same arguments, in a network that it has to itself and that ends with it. Ends as it does.
 * @param main the program's URL
 * @param settings of that network, as `inOwn` takes them
 * @returns whether it has run; not if this is that run, or there can be no such network
 */
export async function apart(main: string, settings: readonly string[] = []): Promise<boolean> {
  if (process.connected || networksMissing(settings)) return false;
  const [program, ...args] = inOwn('exec "$@"', settings);
  const again = [process.execPath, fileURLToPath(main), ...process.argv.slice(2)];
  const child = spawn(program, [...args, ...again], { stdio: ['inherit', 'inherit', 'inherit', 'ipc'] });
  // A terminal sends the first one to both.
  process.on('SIGINT', () => {}).on('SIGTERM', () => child.kill());
  const [status] = await once(child, 'exit');
  // None if a signal has ended it.
  process.exitCode = status ?? 1;
  return true;
}

async function stretch(scope: Scope, name: string, index: number): Promise<Wire> {
  // Interface names have at most 15 characters.
  const id = `${process.pid}-${index}`;
  const [bridge, port, far] = [`icb${id}`, `icp${id}`, `icn${id}`];
  const { outside, inside } = addresses(index);
  await ip('link', 'add', bridge, 'type', 'bridge');
  scope.defer(() => ip('link', 'del', bridge));
  await ip('link', 'add', port, 'type', 'veth', 'peer', 'name', far, 'netns', name);
  // It would disappear with its namespace, but some time later: the next row may need the name before.
  scope.defer(() => ip('link', 'del', port));
  await ip('link', 'set', port, 'master', bridge, 'up');
  await ip('addr', 'add', `${outside}/30`, 'dev', bridge);
  await ip('link', 'set', bridge, 'up');
  await ip('-n', name, 'addr', 'add', `${inside}/30`, 'dev', far);
  await ip('-n', name, 'link', 'set', far, 'up');
  return {
    inside,
    outside,
    cut: () => ip('link', 'set', port, 'nomaster'),
    mend: () => ip('link', 'set', port, 'master', bridge),
    packets: () => ['rx_packets', 'tx_packets'].reduce((sum, name) => sum + counter(port, name), 0),
  };
}

/** The two addresses of a wire or path of this process: 198.18.0.0/15 is reserved for network tests (RFC 2544). */
function addresses(index: number) {
  const net = `198.${18 + (process.pid % 2)}.${(process.pid >> 1) % 256}`;
  return { outside: `${net}.${index * 4 + 1}`, inside: `${net}.${index * 4 + 2}` };
}

/** Paths have the addresses behind those of wires. */
const FIRST_PATH = 32;

/** One direction of a path. What is left out is no limit, and no fault. */
export interface Direction {
  readonly delayMs?: number;
  /** Packets take up to this much longer, in the same order. */
  readonly jitterMs?: number;
  /** The share of packets that are lost. */
  readonly loss?: number;
  readonly bytesPerSecond?: number;
  /** Bytes that may wait for that rate. More are lost. */
  readonly queueBytes?: number;
  /** The longest packet, in bytes. Longer ones vanish, and nobody is told. */
  readonly mtu?: number;
}

/** A namespace's way to the outside that is as long, thin and lossy as one likes. */
export interface Path extends Pick<Wire, 'inside' | 'outside'> {
  /** `up` leads into the namespace. */
  set(both: { readonly up: Direction; readonly down: Direction }): Promise<void>;
}

/** Returns why there can be no paths here; false if there can. */
export function pathsMissing(): string | false {
  return networksMissing() || (existsSync('/dev/net/tun') ? goMissing() : 'paths need /dev/net/tun');
}

/** Adds a path to a namespace: two TUN devices, and a program between them. @param index its number among the process' paths */
export async function pathTo(scope: Scope, { name }: { readonly name: string }, index = 0): Promise<Path> {
  const [near, far] = [`ipp${process.pid}-${index}`, `ipn${process.pid}-${index}`];
  const { outside, inside } = addresses(FIRST_PATH + index);
  const child = spawn(await goProgram('path'), [near, far], { stdio: ['pipe', 'pipe', 'inherit'] });
  scope.defer(() => killChild(child));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const said = () => within(lines.next(), { what: 'the program between two TUN devices' });
  await said();
  await ip('link', 'set', far, 'netns', name);
  await ip('addr', 'add', outside, 'peer', inside, 'dev', near);
  await ip('link', 'set', near, 'up');
  await ip('-n', name, 'addr', 'add', inside, 'peer', outside, 'dev', far);
  await ip('-n', name, 'link', 'set', far, 'up');
  return {
    inside,
    outside,
    async set(both) {
      child.stdin.write(`${JSON.stringify(both)}\n`);
      await said();
    },
  };
}

function counter(port: string, name: string): number {
  return Number(readFileSync(`/sys/class/net/${port}/statistics/${name}`, 'utf8'));
}

async function removeLeftOvers(): Promise<void> {
  const names = existsSync(NAMESPACES) ? readdirSync(NAMESPACES) : [];
  for (const name of names.filter((each) => each.startsWith(PREFIX))) {
    const pid = Number(name.slice(PREFIX.length));
    if (isAlive(pid)) continue;
    await ip('netns', 'del', name);
    const bridges = readdirSync('/sys/class/net').filter((each) => each.startsWith(`icb${pid}-`));
    for (const bridge of bridges) await ip('link', 'del', bridge);
  }
}

async function ip(...args: string[]): Promise<void> {
  await run('ip', args);
}
