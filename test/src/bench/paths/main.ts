// npm run bench -- --paths: measures planes over paths that are long, lossy or thin, beside bare TCP. It runs in a network of its own.
import { execFileSync } from 'node:child_process';
import { tableLine } from '../../harness/docs-page.ts';
import { Scope } from '../../harness/index.ts';
import { listening } from '../../rig/child.ts';
import { interrupted, say, unless } from '../../rig/command.ts';
import { short } from '../../rig/figures.ts';
import type { Front } from '../../rig/load/messages.ts';
import { namespace, pathTo } from '../../rig/network.ts';
import { inOne } from '../families.ts';
import type { Case, PathSettings } from './cases.ts';
import { measure, type Seen } from './measure.ts';

/** Measures one case on one contender: in a namespace of its own, over a path that is new. */
async function run(settings: PathSettings, each: Case, contender: string, signal: AbortSignal): Promise<Seen> {
  await using scope = new Scope();
  const space = await namespace(scope, []);
  for (const inside of [[], space.command]) setTcp(inside, settings.tcp);
  const path = await pathTo(scope, space);
  await path.set({ up: each.direction, down: each.direction });
  const anp = contender === 'anp' ? settings.anp : undefined;
  const far = { command: space.command, outside: path.outside };
  const family = contender === 'tcp' ? undefined : inOne({ far, anp, protocol: 'connect' });
  const host = family ? '127.0.0.1' : path.inside;
  const { port } = await listening(scope, 'rig/load/destination.ts', {
    argument: host,
    command: [...space.command, process.execPath],
  });
  const { door } = (await family?.(scope, port)) ?? {};
  const front: Front = door ? { kind: 'door', door, protocol: 'connect' } : { kind: 'direct', host };
  return await unless(signal, measure(front, port, each, settings.windowMs));
}

/** What one run has learnt about a path is nothing to the next. @param control the congestion control; default: the machine's */
function setTcp(inside: readonly string[], control?: string): void {
  const set = control === undefined ? [] : [`net.ipv4.tcp_congestion_control=${control}`];
  const [command = '', ...args] = [...inside, 'sysctl', '-qw', 'net.ipv4.tcp_no_metrics_save=1', ...set];
  execFileSync(command, args);
}

/** Prints a row of the table for each path, with the figures of each contender. */
async function table(settings: PathSettings, signal: AbortSignal): Promise<void> {
  const contenders = ['tcp', 'isthmus', ...(settings.anp ? ['anp'] : [])];
  say(`${tableLine(['path', ...contenders])}\n${tableLine(['---', ...contenders.map(() => '---')])}`);
  for (const each of settings.cases) {
    const cells = [each.title];
    for (const contender of contenders) {
      const cell = run(settings, each, contender, signal).then(
        told,
        (error: Error) => `${error.message.split('\n', 1)}`,
      );
      cells.push(await cell);
    }
    if (signal.aborted) return;
    say(tableLine(cells));
  }
}

function told({ kbPerSecond, small }: Seen): string {
  const rate = `${short(kbPerSecond)} kB/s`;
  if (!small) return rate;
  const { idleMs, p50Ms, mostMs, dialMs, lost } = small;
  const times = `${short(p50Ms)} ms, at most ${short(mostMs)} (idle ${short(idleMs)}); dials at most ${short(dialMs)}`;
  return `${rate}; ${times}; ${lost} lost`;
}

process.once('message', async (settings: PathSettings) => {
  await table(settings, interrupted());
  if (process.connected) process.send?.({}, () => process.exit(0));
});
