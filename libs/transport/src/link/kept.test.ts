import assert from 'node:assert/strict';
import { describe, mock, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { TRANSPORT } from '../defaults.ts';
import { KeptLink } from './kept.ts';

/** A kept link without a socket, on a clock of its own. `next` says what becomes of each attempt; `defect` throws in whatever is called. */
function keep(next: () => Error | undefined, defect = () => {}) {
  const said: string[] = [];
  const opened: Link[] = [];
  let signal: AbortSignal | undefined;
  class Link {
    readonly #closed = Promise.withResolvers<Error>();
    readonly closed = this.#closed.promise;
    destroy({ message }: Error): void {
      said.push(`destroyed: ${message}`);
    }
    async lose(): Promise<void> {
      this.#closed.resolve(new Error('silent'));
      await tick();
    }
  }
  const kept = new KeptLink<Link>({
    mostPauseMs: ({ message }) => (message === 'not allowed' ? 8000 : 2000),
    async open(abandoned) {
      signal = abandoned;
      const error = next();
      if (error) throw error;
      return new Link();
    },
    opened(link) {
      opened.push(link);
      defect();
    },
    lost({ message }) {
      said.push(`lost: ${message}`);
      defect();
    },
    failed({ message }, again) {
      said.push(`failed${again ? ' again' : ''}: ${message}`);
      defect();
    },
    fault: ({ message }) => void said.push(`fault: ${message}`),
  });
  const attempts = async (ms: number) => {
    let count = 0;
    // Timers begin work that goes on in later ticks.
    for (let at = 0; at < ms; at += 10) {
      const before = opened.length + said.length;
      mock.timers.tick(10);
      await tick();
      count += Number(opened.length + said.length > before);
    }
    return count;
  };
  return { kept, said, opened, attempts, signal: () => signal };
}

describe('a kept link', () => {
  const run = (says: string, act: () => Promise<void>) =>
    test(says, async () => {
      mock.timers.enable({ apis: ['setTimeout', 'Date'] });
      mock.method(performance, 'now', () => Date.now());
      mock.method(Math, 'random', () => 1);
      try {
        await act();
      } finally {
        mock.timers.reset();
        mock.restoreAll();
      }
    });

  run('is tried ever more rarely while it fails, and says whether the reason is another', async () => {
    let text = 'refused';
    const { kept, said, attempts } = keep(() => new Error(text));
    // At 0, 50, 150, 350, 750 and 1550 ms, then every 2 s.
    assert.equal(await attempts(1600), 6);
    assert.equal(await attempts(20_000), 10);
    assert.deepEqual(said.slice(0, 3), ['failed: refused', 'failed again: refused', 'failed again: refused']);
    assert.equal(kept.failure?.error.message, 'refused');
    text = 'not trusted';
    await attempts(4000);
    assert.deepEqual(said.slice(-2), ['failed: not trusted', 'failed again: not trusted']);
    kept.stop();
    assert.equal(await attempts(10_000), 0);
  });

  run('is tried as rarely as its last failure asks for', async () => {
    let text = 'gone';
    const { kept, attempts } = keep(() => new Error(text));
    assert.equal(await attempts(30_000), 20);
    text = 'not allowed';
    // Soon, then 3.2 and 6.4 s later, then every 8 s.
    assert.equal(await attempts(30_000), 5);
    text = 'gone';
    await attempts(8000);
    assert.equal(await attempts(30_000), 15);
    kept.stop();
  });

  run('is opened at once after it was lost, and later if it does not last', async () => {
    const { kept, said, opened, attempts } = keep(() => undefined);
    await attempts(10);
    assert.equal(kept.link, opened[0]);
    await attempts(TRANSPORT.linkProvenMs + 10);
    await opened[0]?.lose();
    assert.deepEqual([kept.link, kept.failure?.error.message], [undefined, 'silent']);
    await attempts(10);
    assert.equal(kept.link, opened[1]);
    const pauses: number[] = [];
    for (let n = 1; n <= 4; n++) {
      await opened[n]?.lose();
      let ms = 0;
      for (; opened.length === n + 1; ms += 10) await attempts(10);
      pauses.push(ms);
    }
    assert.deepEqual(pauses, [50, 100, 200, 400]);
    assert.equal(said.length, 5);
    kept.stop();
  });

  run('goes on, and reports it, if what it calls throws', async () => {
    const outcomes = [new Error('refused'), undefined, undefined];
    const defect = () => {
      throw new Error('a defect');
    };
    const { kept, said, opened, attempts } = keep(() => outcomes.shift(), defect);
    await attempts(100);
    assert.equal(kept.link, opened[0]);
    await opened[0]?.lose();
    await attempts(100);
    assert.equal(kept.link, opened[1]);
    const fault = 'fault: a defect';
    assert.deepEqual(said, ['failed: refused', fault, fault, 'lost: silent', fault, fault]);
    kept.stop();
  });

  run("is its caller's to end once it is stopped, and says nothing more", async () => {
    const { kept, said, opened, attempts, signal } = keep(() => undefined);
    await attempts(10);
    kept.stop();
    assert.equal(signal()?.aborted, true);
    assert.equal(kept.link, opened[0]);
    await opened[0]?.lose();
    assert.equal(await attempts(10_000), 0);
    assert.deepEqual(said, []);
  });

  run('is ended if it comes after the stop', async () => {
    const stop = () => void kept.stop();
    const { kept, said, opened, attempts } = keep(stop);
    await attempts(10);
    assert.equal(opened.length, 0);
    assert.deepEqual(said, ['destroyed: it is not wanted any more']);
  });
});
