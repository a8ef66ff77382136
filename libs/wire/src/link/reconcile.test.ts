import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WIRE } from '../defaults.ts';
import { ConnectionError } from '../http2/frames.ts';
import { DiallingReconciler, type ReconcileMessage, ServingReconciler } from './reconcile.ts';

interface FakeStream {
  readonly id: number;
  closed: boolean;
}

/** The two sides of a link, whose messages arrive when the test says so. */
class Sides {
  readonly dialling = new Map<number, FakeStream>();
  readonly serving = new Map<number, FakeStream>();
  readonly ended: string[] = [];
  readonly sent: ReconcileMessage[] = [];
  readonly #dialling = new DiallingReconciler<FakeStream>({
    streams: () => this.dialling.values(),
    send: (message) => this.sent.push(message),
    end: ({ id }) => this.#end('dialling', id),
  });
  readonly #serving = new ServingReconciler<FakeStream>({
    streams: () => this.serving.values(),
    send: (message) => this.sent.push(message),
    end: ({ id }) => this.#end('serving', id),
  });

  open(id: number, ...sides: ('dialling' | 'serving')[]): void {
    for (const side of sides) this[side].set(id, { id, closed: false });
  }

  ask(): void {
    this.#dialling.round();
  }

  deliver(): void {
    for (let message = this.sent.shift(); message; message = this.sent.shift()) {
      if (message.type === 'held') this.#serving.held(message);
      else this.#dialling.lacking(message.streams);
    }
  }

  rounds(count: number): void {
    for (let round = 0; round < count; round++) {
      this.ask();
      this.deliver();
    }
  }

  #end(side: 'dialling' | 'serving', id: number): void {
    this.ended.push(`${side} ${id}`);
    this[side].delete(id);
  }
}

test('what both sides hold stays, for as many rounds as there are', () => {
  const sides = new Sides();
  for (let id = 1; id < 100; id += 2) sides.open(id, 'dialling', 'serving');
  sides.rounds(10);
  assert.deepEqual(sides.ended, []);
});

test('what one side forgot is ended at the other, after two rounds that found it', () => {
  for (const side of ['dialling', 'serving'] as const) {
    const sides = new Sides();
    sides.open(1, 'dialling', 'serving');
    sides.open(3, side);
    sides.open(5, 'dialling', 'serving');
    sides.rounds(2);
    assert.deepEqual(sides.ended, [], 'too young, and then found once');
    sides.rounds(1);
    assert.deepEqual(sides.ended, [`${side} 3`]);
    sides.rounds(3);
    assert.equal(sides.ended.length, 1);
    assert.deepEqual([...sides.dialling.keys()], [...sides.serving.keys()]);
  }
});

test('the last one is found too, when nothing else is open', () => {
  const sides = new Sides();
  sides.open(1, 'dialling', 'serving');
  sides.rounds(1);
  sides.dialling.clear();
  sides.rounds(2);
  assert.deepEqual(sides.ended, ['serving 1']);
});

test('a tunnel that closes while a message travels is no orphan', () => {
  const sides = new Sides();
  for (const gone of ['dialling', 'serving'] as const) {
    for (let round = 0; round < 10; round++) {
      const id = 1 + 2 * round;
      sides.open(id, 'dialling', 'serving');
      sides.rounds(1);
      sides.ask();
      // The message says that both hold it, or is about to; then it closes on one side, and a moment later on the other.
      sides[gone].delete(id);
      sides.deliver();
      sides.dialling.delete(id);
      sides.serving.delete(id);
    }
  }
  sides.rounds(2);
  assert.deepEqual(sides.ended, []);
});

test('a stream that is closed on the wire waits for its reader as long as it takes', () => {
  for (const side of ['dialling', 'serving'] as const) {
    const sides = new Sides();
    sides.open(1, side);
    (sides[side].get(1) as FakeStream).closed = true;
    sides.rounds(5);
    assert.deepEqual(sides.ended, []);
  }
});

test('many tunnels go in several messages that leave no gap', () => {
  const sides = new Sides();
  const count = 2 * WIRE.streamsInMessage + 5;
  for (let index = 0; index < count; index++) sides.open(1 + 2 * index, 'dialling', 'serving');
  sides.open(2 * count + 1, 'serving');
  sides.open(2 * count + 3, 'dialling', 'serving');
  sides.ask();
  sides.ask();
  const messages = sides.sent.filter(({ type }) => type === 'held') as Extract<ReconcileMessage, { type: 'held' }>[];
  assert.equal(messages.length, 3);
  assert.deepEqual(
    messages.map(({ from }) => from),
    [1, ...messages.slice(0, -1).map(({ to }) => to + 1)],
  );
  assert.ok(messages.every((message) => JSON.stringify(message).length < 256 * 1024));
  sides.deliver();
  sides.rounds(1);
  assert.deepEqual(sides.ended, [`serving ${2 * count + 1}`]);
});

test('either half looks at its streams so often, and then refuses a peer that asks again', () => {
  const streams = Array.from({ length: 9_900 }, (_, n) => ({ id: 2 * n + 1, closed: false }));
  let looks = 0;
  const options = {
    streams: () => {
      looks++;
      return streams;
    },
    send() {},
    end() {},
  };
  const serving = new ServingReconciler(options);
  const dialling = new DiallingReconciler(options);
  for (const ask of [() => serving.held({ type: 'held', from: 1, to: 1, streams: [] }), () => dialling.lacking([1])]) {
    looks = 0;
    const refused = (error: unknown) => error instanceof ConnectionError && /too many/.test(error.message);
    assert.throws(() => {
      while (looks < 2_000) ask();
    }, refused);
    assert.ok(looks > 20, 'of many tunnels, 14 messages come at once when two rounds do');
  }
});
