// npm run bench -- --paths: measures planes over paths that are long, lossy or thin, beside bare TCP. It runs in a network of its own.
import { execFileSync } from 'node:child_process';
import { Scope } from '../../harness/index.ts';
import { listening } from '../../rig/child.ts';
import { short } from '../../rig/figures.ts';
import type { Front } from '../../rig/load/messages.ts';
import { namespace, pathTo } from '../../rig/network.ts';
import { type Family, overPath } from '../families.ts';
import { CASES, type Case, type PathSettings } from './cases.ts';
import { measure, type Seen } from './measure.ts';

/** Measures one case on one contender: in a namespace of its own, over a path that is new. */
async function run(settings: PathSettings, each: Case, contender: string): Promise<Seen> {
  await using scope = new Scope();
  const far = await namespace(scope, []);
  for (const inside of [[], far.command]) setTcp(inside, settings.tcp);
  const path = await pathTo(scope, far);
  await path.set({ up: each.direction, down: each.direction });
  const family: Family | undefined =
    contender === 'tcp'
      ? undefined
      : overPath({ command: far.command, outside: path.outside }, contender === 'anp' ? settings.anp : undefined);
  const host = family ? '127.0.0.1' : path.inside;
  const { port } = await listening(scope, 'rig/load/destination.ts', {
    argument: host,
    command: [...far.command, process.execPath],
  });
  const { door } = (await family?.(scope, port)) ?? {};
  const front: Front = door ? { kind: 'door', door, protocol: 'connect' } : { kind: 'direct', host };
  return await measure(front, port, each, settings.windowMs);
}

/** What one run has learnt about a path is nothing to the next. @param control the congestion control; default: the machine's */
function setTcp(inside: readonly string[], control?: string): void {
  const set = control === undefined ? [] : [`net.ipv4.tcp_congestion_control=${control}`];
  const [command = '', ...args] = [...inside, 'sysctl', '-qw', 'net.ipv4.tcp_no_metrics_save=1', ...set];
  execFileSync(command, args);
}

const settings = JSON.parse(process.argv[2] ?? '') as PathSettings;
const contenders = ['tcp', 'isthmus', ...(settings.anp ? ['anp'] : [])];

/** @returns a cell for each contender, with the figures of a row */
async function row(each: Case): Promise<string[]> {
  const cells: string[] = [];
  for (const contender of contenders) cells.push(await cell(each, contender));
  return cells;
}

async function cell(each: Case, contender: string): Promise<string> {
  try {
    return told(await run(settings, each, contender));
  } catch (error) {
    return (error as Error).message.split('\n', 1)[0] as string;
  }
}

function told({ kbPerSecond, small }: Seen): string {
  const rate = `${short(kbPerSecond)} kB/s`;
  if (!small) return rate;
  const { idleMs, p50Ms, mostMs, dialMs, lost } = small;
  const times = `${short(p50Ms)} ms, at most ${short(mostMs)} (idle ${short(idleMs)}); dials at most ${short(dialMs)}`;
  return `${rate}; ${times}; ${lost} lost`;
}

const chosen = CASES.filter(
  ({ name }) => settings.cases.length === 0 || settings.cases.some((one) => name.startsWith(one)),
);
process.stdout.write(`| path | ${contenders.join(' | ')} |\n| --- ${'| --- '.repeat(contenders.length)}|\n`);
for (const each of chosen) process.stdout.write(`| ${each.title} | ${(await row(each)).join(' | ')} |\n`);
process.exit(0);
