import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { isAlive, type Scope } from '../harness/index.ts';

const run = promisify(execFile);
const NAMESPACES = '/run/netns';
const PREFIX = 'isthmus-chaos-';

/** Returns why processes cannot have their own networks here; undefined if they can. */
export function networksMissing(): string | undefined {
  if (process.platform !== 'linux') return 'network namespaces need Linux';
  return process.getuid?.() === 0 ? undefined : 'network namespaces need root';
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

/** A network namespace with one bridge per wire. All of it is removed with the scope; leftovers of dead processes are removed first. */
export async function namespace<T extends string>(scope: Scope, wires: readonly T[]) {
  await removeLeftOvers();
  const name = `${PREFIX}${process.pid}`;
  await ip('netns', 'add', name);
  scope.defer(() => ip('netns', 'del', name));
  await ip('-n', name, 'link', 'set', 'lo', 'up');
  const made = new Map<T, Wire>();
  for (const [index, wire] of wires.entries()) made.set(wire, await stretch(scope, name, index));
  return { command: ['ip', 'netns', 'exec', name] as const, wire: (of: T) => made.get(of) as Wire };
}

async function stretch(scope: Scope, name: string, index: number): Promise<Wire> {
  // Interface names have at most 15 characters; 198.18.0.0/15 is reserved for network tests (RFC 2544).
  const id = `${process.pid}-${index}`;
  const [bridge, port, far] = [`icb${id}`, `icp${id}`, `icn${id}`];
  const net = `198.${18 + (process.pid % 2)}.${(process.pid >> 1) % 256}`;
  const [outside, inside] = [`${net}.${index * 4 + 1}`, `${net}.${index * 4 + 2}`];
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

function counter(port: string, name: string): number {
  return Number(readFileSync(`/sys/class/net/${port}/statistics/${name}`, 'utf8'));
}

async function removeLeftOvers(): Promise<void> {
  for (const pid of ownersOf(await namespaces())) {
    await ip('netns', 'del', `${PREFIX}${pid}`);
    const { stdout } = await run('ip', ['-o', 'link', 'show', 'type', 'bridge']);
    for (const [, bridge = ''] of stdout.matchAll(/^\d+: (icb\d+-\d+):/gm)) {
      if (bridge.startsWith(`icb${pid}-`)) await ip('link', 'del', bridge);
    }
  }
}

async function namespaces(): Promise<string[]> {
  try {
    return readdirSync(NAMESPACES);
  } catch {
    return [];
  }
}

/** Returns the process ids of namespaces whose process has ended. */
function ownersOf(names: readonly string[]): number[] {
  return names
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => Number(name.slice(PREFIX.length)))
    .filter((pid) => !isAlive(pid));
}

async function ip(...args: string[]): Promise<void> {
  await run('ip', args);
}
