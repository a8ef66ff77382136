import assert from 'node:assert/strict';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect } from 'node:net';
import test from 'node:test';
import { echo, type Program, scoped, split, until } from '../harness/index.ts';
import { dial } from './dials.ts';

const ESTABLISHED = '01';

/** Go's, and the kernel's timers run late by a little. */
const IDLE_S = 15;

interface Connection {
  readonly inode: string;
  /** `local>remote`, for failures. */
  readonly ends: string;
  /** Whether the kernel's next act is to ask the peer, and in how many seconds. */
  readonly asks: boolean;
  readonly seconds: number;
}

/** The TCP connections of this machine (proc_pid_net(5): `tr` is 2 for a keepalive timer, `tm->when` counts hundredths of a second). */
function connections(): Connection[] {
  const lines = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) =>
    readFileSync(file, 'utf8').trim().split('\n').slice(1),
  );
  return lines.flatMap((line) => {
    const [, local = '', remote = '', state, , timer = '', , , , inode = ''] = line.trim().split(/\s+/);
    if (state !== ESTABLISHED) return [];
    const [kind, when = ''] = timer.split(':');
    return [{ inode, ends: `${local}>${remote}`, asks: kind === '02', seconds: Number.parseInt(when, 16) / 100 }];
  });
}

function connectionsOf({ pid }: Program): Connection[] {
  const own = new Set(
    readdirSync(`/proc/${pid}/fd`).map((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
      } catch {
        return undefined;
      }
    }),
  );
  return connections().filter(({ inode }) => own.has(inode));
}

test(
  'the kernel watches every TCP connection that a plane opens or accepts: of callers, destinations, links, Redis, health and admin ports',
  { skip: process.platform !== 'linux' && 'only Linux says which timers its connections have' },
  scoped(async (scope) => {
    const plane = await split(scope, { gateways: 1, hubs: 1 });
    const destination = await echo(scope);
    const [front] = plane.gateways;
    const [hub] = plane.hubs;
    const [agent] = plane.agents;
    assert.ok(front && hub && agent);
    await dial(scope, front, 'mtls', destination.authority);
    const programs = [front.program, hub.program, agent];
    for (const { healthPort } of programs) {
      const asking = connect(healthPort, '127.0.0.1');
      scope.defer(() => asking.destroy());
    }
    for (const program of programs) {
      let unwatched: Connection[] = [];
      // A connection that has just carried something has another timer for a moment.
      const watched = () => {
        const all = connectionsOf(program);
        unwatched = all.filter(({ asks, seconds }) => !asks || seconds > IDLE_S + 1);
        return all.length >= 2 && unwatched.length === 0;
      };
      await until(watched, { what: () => `${program.name}: keepalive on ${JSON.stringify(unwatched)}` });
    }
  }),
);
