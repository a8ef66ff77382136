import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { afterEach, describe, mock, test } from 'node:test';
import { LinkChecks, type PingInterval, WIRE, watchLiveness } from '@isthmus/wire';
import { http2Link } from './link.ts';
import { pingAtRest } from './upgrade.ts';

describe('liveness', () => {
  afterEach(() => mock.timers.reset());

  /** A link's two halves as the watch sees them. */
  function watched(ping?: PingInterval, carries = () => false) {
    const session = Object.assign(new EventEmitter(), {
      bytesRead: 0,
      rtt: 0.3,
      bytesWritten: 0,
      pings: 0,
      ping() {
        session.pings++;
        session.bytesWritten++;
      },
    });
    const deaths: string[] = [];
    const suspicions: boolean[] = [];
    mock.timers.enable({ apis: ['setInterval'] });
    // As a link does: the owner ends the session once it is dead.
    const mayHaveDied = watchLiveness(
      session as never,
      (error) => {
        deaths.push(error.message);
        session.emit('close');
      },
      { checks: new LinkChecks(), ping, carries, suspected: (is) => suspicions.push(is) },
    );
    return {
      session,
      deaths,
      suspicions,
      mayHaveDied,
      check: (count: number) => mock.timers.tick(count * WIRE.checkEveryMs),
    };
  }

  test('a link with bytes both ways is never asked', () => {
    const { session, deaths, check } = watched();
    for (let i = 0; i < 100; i++) {
      session.bytesRead++;
      session.bytesWritten++;
      check(2);
    }
    assert.equal(session.pings, 0);
    assert.deepEqual(deaths, []);
  });

  for (const ping of [undefined, { seconds: 5, atRest: true }])
    test(`a side that only receives asks as often, so that the other hears of it (${ping ? 'may rest' : 'as usual'})`, () => {
      const { session, deaths, check } = watched(ping, () => true);
      for (let i = 0; i < 100; i++) {
        session.bytesRead++;
        check(1);
      }
      assert.ok(session.pings >= 16, `${session.pings} PINGs`);
      assert.deepEqual(deaths, []);
    });

  test('a link at rest is asked once in a second and a quarter, and lives by its answers', () => {
    const { session, deaths, check } = watched();
    for (let asked = 1; asked <= 40; asked++) {
      check(4);
      assert.equal(session.pings, asked);
      session.bytesRead += 17;
      check(1);
    }
    assert.deepEqual(deaths, []);
  });

  test('a link that does not answer is suspected within three seconds, and dead once, within five', () => {
    const { session, deaths, suspicions, check } = watched();
    session.bytesRead++;
    check(9);
    assert.deepEqual(suspicions, []);
    check(1);
    assert.deepEqual([suspicions, deaths], [[true], []]);
    assert.equal(session.pings, 3, 'it is asked once a second');
    check(9);
    assert.deepEqual(deaths, []);
    check(1);
    assert.deepEqual(deaths, ['silent for 4.75 s, even to PING']);
    check(20);
    assert.deepEqual([deaths.length, suspicions], [1, [true]]);
  });

  test('a suspect that is heard again lives on, and gets as long the next time', () => {
    const { session, deaths, suspicions, check } = watched();
    for (let time = 0; time < 3; time++) {
      session.bytesRead++;
      check(19);
    }
    session.bytesRead++;
    check(1);
    assert.deepEqual([deaths, suspicions], [[], [true, false, true, false, true, false]]);
  });

  test('a link is dead only after the round trip of its path besides, and after three seconds if that is unknown', () => {
    for (const [rtt, checks] of [
      [2100, 27],
      [0, 31],
    ] as const) {
      const { session, deaths, check } = watched();
      session.rtt = rtt;
      check(checks - 1);
      assert.deepEqual(deaths, []);
      check(1);
      assert.deepEqual(deaths, [`silent for ${checks / 4} s, even to PING`]);
      mock.timers.reset();
    }
  });

  test('a process that was heard as it should be may have died just now, one that was not heard for long may be alive', () => {
    const { session, mayHaveDied, check } = watched();
    const wrote = () => {
      session.bytesWritten++;
      return mayHaveDied();
    };
    session.bytesRead++;
    check(5);
    assert.equal(wrote(), true, 'the answer to the first PING may still be on its way');
    check(2);
    assert.equal(wrote(), false, 'it is overdue');
    session.bytesRead++;
    assert.equal(wrote(), true);
    check(3);
    assert.equal(mayHaveDied(), false, 'there is nothing that it may not have read');
  });

  test('a link with a longer interval at rest is watched as usual while it carries something', () => {
    let carries = false;
    const { session, deaths, check } = watched({ seconds: 5, atRest: true }, () => carries);
    check(19);
    assert.equal(session.pings, 0);
    check(1);
    assert.equal(session.pings, 1);
    session.bytesRead++;
    check(12);
    assert.equal(session.pings, 1);
    carries = true;
    check(1);
    assert.equal(session.pings, 2, 'it was silent for a second');
    check(14);
    assert.deepEqual(deaths, []);
    check(1);
    assert.deepEqual(deaths, ['silent for 5.75 s, even to PING']);
  });

  test('a link that was asked at rest has a second to answer once it carries something', () => {
    let carries = false;
    const { session, deaths, check } = watched({ seconds: 10, atRest: true }, () => carries);
    check(40);
    assert.equal(session.pings, 1);
    carries = true;
    check(4);
    assert.deepEqual(deaths, []);
    session.bytesRead++;
    check(4);
    assert.deepEqual(deaths, [], 'it has answered');
  });

  test('a dead link is found though it carries something only for a moment, again and again', () => {
    let carries = false;
    const { deaths, check } = watched({ seconds: 10, atRest: true }, () => carries);
    for (let moment = 0; moment < 4; moment++) {
      check(15);
      carries = true;
      check(1);
      carries = false;
    }
    assert.equal(deaths.length, 1);
  });

  test('a link that comes to rest has as long to answer as one at rest', () => {
    let carries = true;
    const { session, deaths, check } = watched({ seconds: 5, atRest: true }, () => carries);
    session.bytesRead++;
    check(9);
    carries = false;
    check(24);
    assert.deepEqual(deaths, []);
    check(1);
    assert.deepEqual(deaths, ['silent for 8.25 s, even to PING']);
  });

  test('an interval that an agent wants counts whatever the link carries', () => {
    const { session, check } = watched({ seconds: 5, atRest: false }, () => true);
    check(19);
    assert.equal(session.pings, 0);
  });

  test('the more agents a hub has, the rarer the PINGs of the next ones at rest', () => {
    const seconds = [0, 99, 100, 899, 100_000].map((links) => pingAtRest(links)?.seconds);
    assert.deepEqual(seconds, [undefined, undefined, 2, 9, 10]);
  });

  test('one timer checks all links, and ends with the last', () => {
    mock.timers.enable({ apis: ['setInterval'] });
    const checks = new LinkChecks();
    const seen = [0, 0];
    const quits = seen.map((_, link) => checks.add(() => void seen[link]!++));
    mock.timers.tick(WIRE.checkEveryMs);
    quits[0]?.();
    mock.timers.tick(WIRE.checkEveryMs);
    quits[1]?.();
    mock.timers.tick(10 * WIRE.checkEveryMs);
    assert.deepEqual(seen, [1, 2]);
    checks.add(() => void seen[0]!++);
    mock.timers.tick(WIRE.checkEveryMs);
    assert.deepEqual(seen, [2, 2]);
  });

  test('what arrived while this process stood still is read before it looks', async (t) => {
    const { session, deaths, check } = watched();
    session.bytesRead++;
    check(1);
    check(18);
    let now = performance.now();
    t.mock.method(performance, 'now', () => now);
    check(0);
    // The answer came, but neither the sockets nor the clock were looked at for a while.
    now += 2000;
    check(1);
    session.bytesRead++;
    await new Promise(setImmediate);
    assert.deepEqual(deaths, []);
    // Silence that follows is one again.
    for (let n = 0; n < 19; n++) {
      now += WIRE.checkEveryMs;
      check(1);
    }
    assert.equal(deaths.length, 1);
  });

  test('a closed session is watched no longer', () => {
    const { session, deaths, check } = watched();
    session.emit('close');
    check(100);
    assert.equal(session.pings, 0);
    assert.deepEqual(deaths, []);
  });

  test('over a real connection both ends live at rest, and both end when nothing comes through any more', async (t) => {
    const server = net.createServer().listen(0, '127.0.0.1');
    // What comes to the relay is dropped from some point on, and neither side hears of it.
    let dropping = false;
    const relay = net
      .createServer((inner) => {
        const outer = net.connect((server.address() as AddressInfo).port, '127.0.0.1');
        t.after(() => [inner, outer].forEach((socket) => void socket.destroy()));
        inner.on('data', (chunk) => dropping || outer.write(chunk)).on('error', () => {});
        outer.on('data', (chunk) => dropping || inner.write(chunk)).on('error', () => {});
      })
      .listen(0, '127.0.0.1');
    t.after(() => [server, relay].forEach((listener) => void listener.close()));
    await once(relay, 'listening');
    const socket = net.connect((relay.address() as AddressInfo).port, '127.0.0.1');
    const [accepted] = (await once(server, 'connection')) as [Socket];
    mock.timers.enable({ apis: ['setInterval'] });
    const checks = new LinkChecks();
    let [asked, answered] = [0, 0];
    const deaths: Error[] = [];
    for (const session of [http2Link('server', accepted, 'client'), http2Link('client', socket, 'server')]) {
      t.after(() => session.destroy());
      const ping = session.ping.bind(session);
      session.ping = () => {
        asked++;
        ping(() => answered++);
      };
      const dead = (error: Error) => {
        deaths.push(error);
        session.destroy(error);
      };
      watchLiveness(session, dead, { checks });
    }
    // As long as something comes through, each PING has its answer before the next check.
    const check = async () => {
      mock.timers.tick(WIRE.checkEveryMs);
      while (!dropping && answered < asked) await new Promise(setImmediate);
    };
    for (let n = 0; n < 40; n++) await check();
    assert.ok(answered >= 4, `${answered} PINGs were answered`);
    assert.deepEqual(deaths, []);
    dropping = true;
    for (let n = 0; n < 40; n++) await check();
    assert.equal(deaths.length, 2);
    for (const { message } of deaths) assert.match(message, /^silent for .* s, even to PING$/);
  });

  test('a look that throws ends its own link, and the others are looked at', () => {
    mock.timers.enable({ apis: ['setInterval'] });
    const checks = new LinkChecks();
    const deaths: string[] = [];
    const add = (name: string, ping: () => void) => {
      const session = Object.assign(new EventEmitter(), { bytesRead: 0, bytesWritten: 0, rtt: 0.3, ping });
      const dead = (error: Error) => {
        deaths.push(`${name}: ${error.message}`);
        session.emit('close');
      };
      watchLiveness(session as never, dead, { checks });
    };
    add('first', () => {
      throw new Error('a defect');
    });
    let pings = 0;
    add('second', () => void pings++);
    mock.timers.tick(4 * WIRE.checkEveryMs);
    assert.deepEqual([deaths, pings], [['first: a defect'], 1]);
  });

  test('a link whose agent wants few PINGs is asked as rarely, and found dead as much later', () => {
    const { session, deaths, check } = watched({ seconds: 60, atRest: false });
    check(239);
    assert.equal(session.pings, 0);
    check(1);
    assert.equal(session.pings, 1);
    check(299);
    assert.deepEqual(deaths, []);
    check(1);
    assert.deepEqual(deaths, ['silent for 135 s, even to PING']);
  });
});
