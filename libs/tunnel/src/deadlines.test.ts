import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadlines, type Due, Silence } from './deadlines.ts';

/** A clock that moves when told, and counts the timers that were made. */
function clock() {
  let now = 1000;
  let made = 0;
  const timers: { at: number; run: () => void }[] = [];
  return {
    now: () => now,
    get made() {
      return made;
    },
    after(ms: number, run: () => void) {
      made++;
      const timer = { at: now + ms, run };
      timers.push(timer);
      return () => void timers.splice(timers.indexOf(timer), 1);
    },
    pass(ms: number) {
      for (const end = now + ms; ; ) {
        const [next] = timers.sort((a, b) => a.at - b.at);
        if (!next || next.at > end) {
          now = end;
          return;
        }
        timers.shift();
        now = next.at;
        next.run();
      }
    },
  };
}

function setup() {
  const time = clock();
  const deadlines = new Deadlines(time);
  const told: string[] = [];
  const record = (name: string, ms: number, then = () => {}): Due => ({
    before: undefined,
    behind: undefined,
    due: time.now() + ms,
    remind() {
      told.push(name);
      then();
    },
  });
  return { time, deadlines, told, record };
}

test('each record is reminded of at its time, and then has left', () => {
  const { time, deadlines, told, record } = setup();
  for (const [name, ms] of Object.entries({ hour: 3_600_000, hedge: 300, ack: 50 })) deadlines.enter(record(name, ms));
  assert.equal(deadlines.size, 3);
  time.pass(49);
  assert.deepEqual(told, []);
  time.pass(1);
  assert.deepEqual(told, ['ack']);
  time.pass(250);
  assert.deepEqual(told, ['ack', 'hedge']);
  time.pass(3_599_699);
  assert.equal(told.length, 2);
  time.pass(1);
  assert.deepEqual([told, deadlines.size], [['ack', 'hedge', 'hour'], 0]);
});

test('one that left is not reminded of, and to leave or to enter twice does no harm', () => {
  const { time, deadlines, told, record } = setup();
  const [gone, stays] = [record('gone', 100), record('stays', 100)];
  for (const one of [gone, stays, stays]) deadlines.enter(one);
  deadlines.leave(gone);
  deadlines.leave(gone);
  assert.equal(deadlines.size, 1);
  time.pass(200);
  assert.deepEqual([told, deadlines.size], [['stays'], 0]);
});

test('an assignment moves a record later, and `enter` moves it earlier', () => {
  const { time, deadlines, told, record } = setup();
  const [later, sooner] = [record('later', 100), record('sooner', 10_000)];
  for (const one of [later, sooner]) deadlines.enter(one);
  later.due += 5000;
  sooner.due = time.now() + 200;
  deadlines.enter(sooner);
  time.pass(200);
  assert.deepEqual(told, ['sooner']);
  time.pass(4899);
  assert.deepEqual(told, ['sooner']);
  time.pass(1);
  assert.deepEqual(told, ['sooner', 'later']);
});

test('a record may leave, enter or end others when its time comes', () => {
  const { time, deadlines, told, record } = setup();
  const other = record('other', 101);
  const again = record('again', 100, () => {
    deadlines.leave(other);
    again.due = time.now() + 40;
    if (told.length < 3) deadlines.enter(again);
  });
  for (const one of [again, other]) deadlines.enter(one);
  time.pass(100);
  assert.deepEqual(told, ['again'], 'the other was due too, and left');
  time.pass(1000);
  assert.deepEqual([told, deadlines.size], [['again', 'again', 'again'], 0]);
});

test('dials that come and go share their timers', () => {
  const { time, deadlines, told, record } = setup();
  for (let at = 0; at < 1000; at++) {
    const dial = record('late', 300);
    deadlines.enter(dial);
    time.pass(1);
    deadlines.leave(dial);
  }
  assert.deepEqual(told, []);
  assert.ok(time.made <= 5, `${time.made} timers for 1000 dials`);
});

test('what is due at about the same time is reminded of in one pass', () => {
  const { time, deadlines, told, record } = setup();
  for (let n = 0; n < 100; n++) deadlines.enter(record(`${n}`, 300 + n / 10));
  time.pass(300);
  assert.deepEqual([told.length, time.made], [100, 1]);
});

test('a timer that fires although it was disarmed reminds nobody early', () => {
  const disarmed: (() => void)[] = [];
  const deadlines = new Deadlines({ now: () => 0, after: (_ms, run) => () => void disarmed.push(run) });
  const told: string[] = [];
  const record = (name: string, due: number): Due => {
    return { before: undefined, behind: undefined, due, remind: () => void told.push(name) };
  };
  for (const ms of [60_000, 50, 40]) deadlines.enter(record(`${ms} ms`, ms));
  assert.equal(disarmed.length, 2);
  for (const run of disarmed) run();
  assert.deepEqual(told, []);
});

test('an agent that is heard early on a long path has as long as on any other for its next word', () => {
  const { time, deadlines, told } = setup();
  const silence = new Silence(300, () => told.push('no first word'), deadlines);
  silence.underWay(5000);
  time.pass(1000);
  silence.awaitNext(7000, () => told.push('no answer'));
  time.pass(6990);
  assert.deepEqual(told, []);
  time.pass(20);
  assert.deepEqual(told, ['no answer']);
});
