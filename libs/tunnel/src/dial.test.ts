import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialAbort, type DialSignal } from './dial.ts';

/** The AbortController that a DialAbort must behave like. */
function controller(): { readonly signal: DialSignal; abort(reason?: Error): void } {
  const abort = new AbortController();
  return { signal: abort.signal, abort: (reason) => abort.abort(reason) };
}

function dialAbort(): ReturnType<typeof controller> {
  const signal = new DialAbort();
  return { signal, abort: (reason) => signal.abort(reason) };
}

for (const [name, make] of Object.entries({ controller, dialAbort })) {
  test(`${name}: each listener is called once, with the reason`, () => {
    const { signal, abort } = make();
    const told: string[] = [];
    for (const who of ['a', 'b']) signal.addEventListener('abort', () => told.push(who), { once: true });
    assert.deepEqual([signal.aborted, told], [false, []]);
    abort(new Error('enough'));
    abort(new Error('again'));
    assert.deepEqual([signal.aborted, signal.reason.message, told], [true, 'enough', ['a', 'b']]);
  });

  test(`${name}: a removed or late listener is not called`, () => {
    const { signal, abort } = make();
    const told: string[] = [];
    const early = () => void told.push('early');
    signal.addEventListener('abort', early, { once: true });
    signal.removeEventListener('abort', early);
    signal.removeEventListener('abort', early);
    abort();
    signal.addEventListener('abort', () => told.push('late'), { once: true });
    abort();
    assert.deepEqual([signal.reason instanceof Error, told], [true, []]);
  });
}
