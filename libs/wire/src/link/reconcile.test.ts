import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WIRE } from '../defaults.ts';
import { ConnectionError } from '../http2/frames.ts';
import { DiallingReconciler, type ReconcileMessage, ServingReconciler } from './reconcile.ts';

interface FakeStream {
  readonly id: number;
  closed: boolean;
}

/** The two halves of a link, whose messages arrive when the test says so. */
class Halves {
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
  const halves = new Halves();
  for (let id = 1; id < 100; id += 2) halves.open(id, 'dialling', 'serving');
  halves.rounds(10);
  assert.deepEqual(halves.ended, []);
});

test('what one side forgot is ended at the other, after two rounds that found it', () => {
  for (const side of ['dialling', 'serving'] as const) {
    const halves = new Halves();
    halves.open(1, 'dialling', 'serving');
    halves.open(3, side);
    halves.open(5, 'dialling', 'serving');
    halves.rounds(2);
    assert.deepEqual(halves.ended, [], 'too young, and then found once');
    halves.rounds(1);
    assert.deepEqual(halves.ended, [`${side} 3`]);
    halves.rounds(3);
    assert.equal(halves.ended.length, 1);
    assert.deepEqual([...halves.dialling.keys()], [...halves.serving.keys()]);
  }
});

test('the last one is found too, when nothing else is open', () => {
  const halves = new Halves();
  halves.open(1, 'dialling', 'serving');
  halves.rounds(1);
  halves.dialling.clear();
  halves.rounds(2);
  assert.deepEqual(halves.ended, ['serving 1']);
});

test('a tunnel that closes while a message travels is no orphan', () => {
  const halves = new Halves();
  for (const gone of ['dialling', 'serving'] as const) {
    for (let round = 0; round < 10; round++) {
      const id = 1 + 2 * round;
      halves.open(id, 'dialling', 'serving');
      halves.rounds(1);
      halves.ask();
      // The message says that both hold it, or is about to; then it closes on one side, and a moment later on the other.
      halves[gone].delete(id);
      halves.deliver();
      halves.dialling.delete(id);
      halves.serving.delete(id);
    }
  }
  halves.rounds(2);
  assert.deepEqual(halves.ended, []);
});

test('a stream that is closed on the wire waits for its reader as long as it takes', () => {
  for (const side of ['dialling', 'serving'] as const) {
    const halves = new Halves();
    halves.open(1, side);
    (halves[side].get(1) as FakeStream).closed = true;
    halves.rounds(5);
    assert.deepEqual(halves.ended, []);
  }
});

test('many tunnels go in several messages that leave no gap', () => {
  const halves = new Halves();
  const count = 2 * WIRE.streamsInMessage + 5;
  for (let index = 0; index < count; index++) halves.open(1 + 2 * index, 'dialling', 'serving');
  halves.open(2 * count + 1, 'serving');
  halves.open(2 * count + 3, 'dialling', 'serving');
  halves.ask();
  halves.ask();
  const messages = halves.sent.filter(({ type }) => type === 'held') as Extract<ReconcileMessage, { type: 'held' }>[];
  assert.equal(messages.length, 3);
  assert.deepEqual(
    messages.map(({ from }) => from),
    [1, ...messages.slice(0, -1).map(({ to }) => to + 1)],
  );
  assert.ok(messages.every((message) => JSON.stringify(message).length < 256 * 1024));
  halves.deliver();
  halves.rounds(1);
  assert.deepEqual(halves.ended, [`serving ${2 * count + 1}`]);
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
