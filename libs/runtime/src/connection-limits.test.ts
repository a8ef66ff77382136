import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, describe, mock, test } from 'node:test';
import { sourceOf } from './addresses.ts';
import { Admitted, SharedBudget, WaitingConnections, WaitingPool } from './connection-limits.ts';
import { RUNTIME } from './defaults.ts';
import { changed } from './testing.ts';

test('one group may use the whole budget, and once there are two none can take all', () => {
  const alone = new SharedBudget(1024);
  assert.equal(alone.take(1024, 'a'), true);
  const budget = new SharedBudget(1024);
  const most = (group: string) => {
    let taken = 0;
    while (budget.take(16, group)) taken += 16;
    return taken;
  };
  assert.equal(budget.take(16, 'b'), true);
  budget.give(16, 'b');
  assert.deepEqual(['a', 'b', 'c', 'a'].map(most), [512, 256, 128, 0]);
  budget.give(512, 'a');
  assert.equal(most('c'), 256, 'what is given back is for all');
});

describe('strangers', () => {
  let slots: Disposable | undefined;

  afterEach(() => {
    mock.timers.reset();
    slots?.[Symbol.dispose]();
    slots = undefined;
  });

  let port = 0;

  /** A connection that only comes and goes. */
  function connection(remoteAddress: string, bytesRead = 1): Socket {
    const socket = Object.assign(new EventEmitter(), {
      remoteAddress,
      remotePort: ++port,
      localAddress: '10.1.0.1',
      localPort: 8091,
      bytesRead,
      destroyed: false,
      destroy() {
        socket.destroyed = true;
        socket.emit('close');
        return socket;
      },
    });
    return socket as unknown as Socket;
  }

  function strangers(most: number, mostOfSource: number) {
    mock.timers.enable({ apis: ['setTimeout'] });
    const refused: string[] = [];
    const limits = { most, mostOfSource, deadlineMs: 90_000, names: { most: '--all', mostOfSource: '--source' } };
    const own = new WaitingConnections(limits, (_remote, error) => refused.push(error.message));
    const enter = (address: string, count: number) => {
      const sockets = Array.from({ length: count }, () => connection(address));
      return sockets.filter((socket) => own.enter(socket));
    };
    return { own, refused, enter };
  }

  test('one source has so many places, and gets another for each that it leaves', () => {
    const { own, refused, enter } = strangers(100, 10);
    const let_in = enter('10.0.0.1', 25);
    assert.deepEqual([let_in.length, own.size, refused.length], [10, 10, 15]);
    assert.equal(refused[0], '10 connections from 10.0.0.1 are already waiting to be admitted: --source');
    own.leave(let_in[0] as Socket);
    let_in[1]?.destroy();
    assert.equal(enter('10.0.0.1', 5).length, 2);
    assert.equal(enter('10.0.0.2', 1).length, 1);
  });

  test('where all places are taken, who comes takes one of the source that has the most', () => {
    const { own, refused, enter } = strangers(20, 15);
    const flood = enter('10.0.0.1', 15);
    const other = enter('10.0.0.2', 5);
    const honest = enter('10.0.0.3', 3);
    assert.deepEqual([own.size, honest.length], [20, 3]);
    assert.deepEqual(
      [flood, other].map((sockets) => sockets.filter(({ destroyed }) => destroyed).length),
      [3, 0],
    );
    // The flood itself gets no more.
    assert.equal(enter('10.0.0.1', 5).length, 0);
    assert.match(refused.at(-1) ?? '', /^20 connections are already waiting to be admitted: --all$/);
  });

  test('a connection that has waited for long gives its place to one of its own source', () => {
    let now = 0;
    mock.method(performance, 'now', () => now);
    const { own, enter } = strangers(100, 10);
    const idle = enter('10.0.0.1', 10);
    assert.equal(enter('10.0.0.1', 1).length, 0);
    now = 11_000;
    assert.equal(enter('10.0.0.1', 1).length, 1);
    assert.equal(idle.filter(({ destroyed }) => destroyed).length, 1);
    assert.equal(own.size, 10);
    mock.restoreAll();
  });

  test('where no source stands out, who comes takes the place of the one that has waited longest', () => {
    let now = 0;
    mock.method(performance, 'now', () => now);
    const { own, enter } = strangers(20, 10);
    const idle = Array.from({ length: 20 }, (_, i) => enter(`10.0.1.${i}`, 1)).flat();
    assert.equal(enter('10.0.0.1', 1).length, 0);
    now = 11_000;
    assert.equal(enter('10.0.0.1', 1).length, 1);
    assert.deepEqual([idle.findIndex(({ destroyed }) => destroyed), own.size], [0, 20]);
    mock.restoreAll();
  });

  /** Ports of one process: the first is shared, and has places for all of the budget. */
  function ports(count: number, budget: number, mostOfSource: number) {
    mock.timers.enable({ apis: ['setTimeout'] });
    const pool = new WaitingPool(budget);
    const refused: string[] = [];
    const names = { most: '--all', mostOfSource: '--source' };
    const all = Array.from({ length: count }, (_, i) => {
      const limits = { most: i === 0 ? budget : budget / 2, mostOfSource, deadlineMs: 90_000, names };
      return new WaitingConnections(limits, (_remote, { message }) => refused.push(message), pool);
    });
    const waiting = () => all.reduce((sum, { size }) => sum + size, 0);
    return { pool, refused, waiting, all: all as [WaitingConnections, ...WaitingConnections[]] };
  }

  function entering(port: WaitingConnections | undefined, address: string, count = 1): Socket[] {
    const sockets = Array.from({ length: count }, () => connection(address));
    for (const socket of sockets) port?.enter(socket);
    return sockets;
  }

  /** How many of them are still open. */
  function open(...sockets: Socket[][]): number {
    return sockets.flat().filter(({ destroyed }) => !destroyed).length;
  }

  test('ports of one process share a budget, besides a few places that each has for itself', () => {
    const { pool, refused, waiting, all } = ports(30, 100, 60);
    const flood = (port: WaitingConnections) => Array.from({ length: 60 }, (_, i) => entering(port, `10.0.0.${i}`));
    for (const port of all) flood(port);
    assert.match(
      refused.at(-1) ?? '',
      /^\d+ connections are already waiting to be admitted at the ports of this program: --all$/,
    );
    assert.deepEqual([waiting(), pool.size], [100 + 30 * 4, 100 + 30 * 4]);
    assert.ok(all.every(({ size }) => size >= 4));
    // However the places change hands.
    for (let i = 0; i < 1000; i++) entering(all[i % 30], `10.0.${1 + (i % 7)}.${i % 90}`);
    assert.equal(waiting(), 100 + 30 * 4);
  });

  test('a flood at one port ends no connection of a source that has fewer at another', () => {
    const { all } = ports(4, 100, 100);
    const nat = entering(all[0], '10.0.0.1', 30);
    const others = Array.from({ length: 70 }, (_, i) => entering(all[0], `10.0.1.${i}`)).flat();
    const flood = all.slice(1).map((port) => entering(port, '10.0.0.2', 60));
    assert.equal(open(others), 70);
    // Besides the places that the flooded ports have for themselves.
    const [honest, flooding] = [open(nat), open(...flood) - 3 * 4];
    assert.ok(honest >= flooding, `${honest} of the honest source, ${flooding} of the flood`);
  });

  test('a flood at several ports gives its places to who comes at another', () => {
    const { all } = ports(4, 100, 100);
    const flood = all.slice(1).map((port) => entering(port, '10.0.0.2', 60));
    assert.equal(open(...flood), 100);
    const honest = Array.from({ length: 10 }, (_, i) => entering(all[0], `10.0.1.${i}`, 3));
    assert.equal(open(...honest), 30);
  });

  test('one source has so many places at all ports together', () => {
    const { refused, all } = ports(4, 100, 20);
    const flood = all.map((port) => entering(port, '10.0.0.2', 20));
    assert.equal(open(...flood), 20);
    assert.equal(refused.at(-1), '20 connections from 10.0.0.2 are already waiting to be admitted: --source');
  });

  test('where no source stands out at any port, who comes takes a place only of a connection that had its time', () => {
    let now = 0;
    mock.method(performance, 'now', () => now);
    const { all } = ports(2, 100, 100);
    const idle = Array.from({ length: 100 }, (_, i) => entering(all[0], `10.0.1.${i}`)).flat();
    const flood = Array.from({ length: 50 }, (_, i) => entering(all[1], `10.0.2.${i}`)).flat();
    assert.deepEqual([open(idle), open(flood)], [100, 8]);
    now = 11_000;
    entering(all[1], '10.0.3.1', 1);
    assert.deepEqual([open(idle), open(flood)], [100, 7], 'its own port comes first');
    mock.restoreAll();
  });

  test('a connection that sends nothing ends well before one whose peer is amid something', () => {
    const { own, refused } = strangers(20, 10);
    const [silent, busy] = [connection('10.0.0.1', 0), connection('10.0.0.1')];
    for (const socket of [silent, busy]) own.enter(socket);
    mock.timers.tick(5_000);
    assert.deepEqual([silent.destroyed, busy.destroyed, own.size], [true, false, 1]);
    assert.deepEqual(refused, ['it sent nothing within 5 s']);
  });

  /** Begins a source's connections in two slots. Returns those that have begun. */
  function withSlots(begin: (socket: Socket) => void = () => {}) {
    slots = changed(RUNTIME, { handshakeSlots: 2 });
    mock.timers.enable({ apis: ['setTimeout'] });
    const names = { most: '--all', mostOfSource: '--source' };
    const limits = { most: 100, mostOfSource: 50, deadlineMs: 90_000, names };
    const refused: string[] = [];
    const own = new WaitingConnections(limits, (_remote, { message }) => refused.push(message));
    const begun: Socket[] = [];
    const come = (address: string, bytesRead = 1) => {
      const socket = connection(address, bytesRead);
      assert.ok(own.enter(socket));
      own.whenSlotIsFree(socket, () => {
        begun.push(socket);
        begin(socket);
      });
      return socket;
    };
    /** Each tick of the event loop begins one. */
    const after = async (ms: number) => {
      mock.timers.tick(ms);
      for (let tick = 0; tick < 5; tick++) await new Promise(setImmediate);
    };
    return { own, begun, refused, come, after };
  }

  test('connections of one source are begun in slots, which one that proves nothing has for a while', async () => {
    const { begun, come, after } = withSlots();
    const flood = Array.from({ length: 6 }, () => come('10.0.0.1'));
    const other = come('10.0.0.2');
    assert.deepEqual(begun, [flood[0], flood[1], other], 'another source has slots of its own');
    flood[0]?.destroy();
    assert.equal(begun.length, 3, 'to close is no way to another slot');
    flood[2]?.emit('error', new Error('reset'));
    flood[2]?.destroy();
    await after(RUNTIME.handshakeSlotMs);
    assert.deepEqual(
      begun.slice(3),
      [flood[5]],
      'the newest first, and not all that were begun at once give way at once',
    );
    await after(RUNTIME.handshakeSlotMs / 2);
    const passed = 'then who has waited longest, and who has gone meanwhile is passed over';
    assert.deepEqual(begun.slice(4), [flood[3]], passed);
    await after(RUNTIME.handshakeSlotMs / 2);
    assert.deepEqual(begun.slice(5), [flood[4]]);
  });

  test('one that has proven who it is gives its slot back at once, and keeps its place until it is admitted or ends', async () => {
    const { own, begun, come } = withSlots();
    const [first, second, third] = [come('10.0.0.1'), come('10.0.0.1'), come('10.0.0.1')];
    own.proved(first);
    own.proved(first);
    assert.deepEqual(begun.slice(0, 3), [first, second]);
    await new Promise(setImmediate);
    assert.deepEqual(begun, [first, second, third]);
    assert.equal(own.size, 3);
    first.destroy();
    assert.deepEqual([own.size, begun.length], [2, 3]);
  });

  test('who comes behind a flood of its own address is begun in the next slot', async () => {
    const { begun, come, after } = withSlots();
    for (let n = 0; n < 40; n++) come('10.0.0.1');
    const honest = come('10.0.0.1');
    await after(RUNTIME.handshakeSlotMs);
    assert.ok(begun.includes(honest));
  });

  test('who waits beside some of its own address that come again and again has a turn, too', async () => {
    const { begun, come, after } = withSlots();
    const flood = 10;
    for (let n = 0; n < flood; n++) come('10.0.0.1');
    const honest = come('10.0.0.1');
    // Before it had a slot, others came.
    for (let n = 0; n < flood; n++) come('10.0.0.1');
    let seen = 0;
    for (let round = 0; round < 2 * flood && !begun.includes(honest); round++) {
      await after(RUNTIME.handshakeSlotMs);
      for (const socket of begun.slice(seen)) {
        seen++;
        socket.destroy();
        come('10.0.0.1');
      }
    }
    assert.ok(begun.includes(honest), `it waited behind ${seen} that came again`);
  });

  test('where a connection is proof, all are begun at once', () => {
    const { own, begun, come } = withSlots((socket) => own.leave(socket));
    for (let n = 0; n < 100; n++) come('10.0.0.1');
    assert.equal(begun.length, 100);
  });

  test('who sends more than a ClientHello before it has a slot is ended, and after it may', () => {
    const { come, refused } = withSlots();
    const [first, , waits] = [come('10.0.0.1'), come('10.0.0.1'), come('10.0.0.1')];
    for (const socket of [first, waits]) {
      Object.assign(socket, { readableLength: RUNTIME.waitingBytes });
      socket.emit('readable');
      Object.assign(socket, { readableLength: RUNTIME.waitingBytes + 1 });
      assert.equal(socket.destroyed, false);
      socket.emit('readable');
    }
    assert.deepEqual([first.destroyed, waits.destroyed], [false, true]);
    assert.deepEqual(refused, ['it sent more than 16 KiB before it had a slot']);
  });

  test('who proves who it is, or goes without a byte, leaves its slot at once', async () => {
    const { own, begun, come, after } = withSlots();
    const all = Array.from({ length: 100 }, () => {
      const socket = come('10.0.0.1');
      own.leave(socket);
      return socket;
    });
    assert.deepEqual(begun, all);
    for (let n = 0; n < 100; n++) come('10.0.0.3', 0).destroy();
    assert.equal(begun.length, 200);
    const waits = [come('10.0.0.1'), come('10.0.0.1'), come('10.0.0.1')];
    assert.equal(begun.length, 202);
    own.leave(waits[0] as Socket);
    await after(0);
    assert.equal(begun.at(-1), waits[2]);
    const late = come('10.0.0.1');
    for (const socket of all) socket.destroy();
    await after(0);
    assert.equal(begun.includes(late), false, 'who has left has no slot to give');
  });

  test('connections from one address and port to two addresses here are two', () => {
    const { own } = strangers(20, 10);
    const [one, other] = [connection('10.0.0.1'), connection('10.0.0.1')];
    Object.assign(other, { remotePort: one.remotePort, localAddress: '10.1.0.2' });
    for (const socket of [one, other]) own.enter(socket);
    assert.equal(own.size, 2);
    one.destroy();
    assert.equal(own.size, 1);
  });

  test('a connection that is never let in ends at the deadline', () => {
    const { own, refused, enter } = strangers(100, 10);
    const [late, known] = enter('10.0.0.1', 2);
    own.leave(known as Socket);
    mock.timers.tick(90_000);
    assert.deepEqual([late?.destroyed, known?.destroyed, own.size], [true, false, 0]);
    assert.deepEqual(refused, ['not admitted within 90 s']);
  });

  test('a source is an IPv4 address, or a network of IPv6', () => {
    assert.equal(sourceOf('10.0.0.1'), '10.0.0.1');
    assert.equal(sourceOf('::ffff:10.0.0.1'), '10.0.0.1');
    assert.equal(sourceOf('2001:db8:1:2:3:4:5:6'), sourceOf('2001:db8:1:2::6'));
    assert.notEqual(sourceOf('2001:db8:1:2::6'), sourceOf('2001:db8:1:3::6'));
    assert.equal(sourceOf('fe80::1%eth0'), 'fe80:0:0:0::/64');
    assert.equal(sourceOf('::1'), '0:0:0:0::/64');
    assert.equal(sourceOf(''), '');
  });
});

/** A connection that only comes and goes. */
function connection(remoteAddress: string): Socket {
  const socket = Object.assign(new EventEmitter(), {
    remoteAddress,
    destroyed: false,
    destroy() {
      socket.destroyed = true;
      socket.emit('close');
    },
  });
  return socket as unknown as Socket;
}

test('operators of one tenant leave connections to others, from however many addresses', () => {
  const refused: string[] = [];
  const admitted = new Admitted({ most: 20, mostOfSource: 5 }, (_remote, { message }) => refused.push(message));
  const enter = (tenant: string | undefined, count: number) => {
    const sockets = Array.from({ length: count }, (_, n) => connection(`10.0.${n}.${tenant?.length ?? 0}`));
    return sockets.filter((socket) => admitted.enter(socket, tenant));
  };
  const acme = enter('acme', 20);
  assert.equal(acme.length, 10);
  assert.match(refused[0] ?? '', /^10 connections are open, and those of tenant acme leave too few to others/);
  assert.deepEqual([enter('b', 20).length, enter(undefined, 20).length], [5, 5]);
  acme[0]?.destroy();
  assert.equal(enter(undefined, 20).length, 1);
});
