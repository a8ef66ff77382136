import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Outgoing } from './halves.ts';

const text = (kept: Outgoing) => Buffer.concat([...kept.chunks()]).toString();

test('bytes are kept from the position where they were let go of, also inside a chunk', () => {
  const kept = new Outgoing();
  for (const chunk of ['abc', '', 'de', 'fgh']) kept.add(Buffer.from(chunk));
  assert.equal(text(kept), 'abcdefgh');
  kept.release(4);
  assert.deepEqual([text(kept), kept.from, kept.to, kept.bytes], ['efgh', 4, 8, 4]);
  kept.release(4);
  kept.release(5);
  assert.equal(text(kept), 'fgh');
  kept.add(Buffer.from('i'));
  kept.release(9);
  assert.deepEqual([text(kept), kept.from, kept.to], ['', 9, 9]);
});

test('small chunks are kept together, and a view of a large read does not keep all of it', () => {
  const kept = new Outgoing();
  for (let count = 0; count < 10_000; count++) kept.add(Buffer.alloc(64 * 1024, 'x').subarray(count, count + 1));
  const chunks = [...kept.chunks()];
  assert.ok(chunks.length < 10, `${chunks.length} chunks`);
  const held = new Set(chunks.map(({ buffer }) => buffer));
  const bytes = [...held].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.ok(bytes < 128 * 1024, `${bytes} bytes`);
  assert.equal(text(kept), 'x'.repeat(10_000));
  const long = Buffer.alloc(5000);
  kept.add(long);
  kept.add(Buffer.from('tail'));
  kept.release(10_000);
  const [first, last] = [...kept.chunks()];
  assert.ok(first?.buffer === long.buffer, 'a long chunk is not copied');
  assert.equal(String(last), 'tail');
});

test('what was let go of is not referred to any more, however many chunks came', () => {
  const kept = new Outgoing();
  for (let position = 0; position < 100_000; position += 10) {
    kept.add(Buffer.alloc(10));
    kept.release(Math.max(0, position - 100));
  }
  assert.equal(kept.bytes, 110);
  assert.ok([...kept.chunks()].length <= 2);
});

/** A process of its own, because it counts all collections of the whole heap (kind 4), and prints what is kept in the end. */
const LETS_GO = `
    const { Outgoing } = await import(process.argv[1]);
  let majors = 0;
  const count = (list) => { majors += list.getEntries().filter(({ detail }) => detail.kind === 4).length; };
  const observer = new PerformanceObserver(count);
  observer.observe({ entryTypes: ['gc'] });
  const kept = new Outgoing();
  for (let chunks = 0; chunks < 8192; chunks++) {
    kept.add(Buffer.allocUnsafeSlow(64 * 1024));
    kept.release(Math.max(kept.from, kept.to - 2 * 1024 * 1024));
    if (chunks % 128 === 127) gc({ type: 'minor' });
    // All that is kept grows old.
    if (chunks === 512) gc();
    if (chunks % 64 === 0) await new Promise(setImmediate);
  }
  await new Promise(setImmediate);
  observer.disconnect();
  console.log(JSON.stringify({ majors, bytes: kept.bytes }));
`;

test('what was let go of dies young, also after some of it grew old', { skip: 'Deno' in globalThis }, async () => {
  // V8 leaves the heap room to grow, as in our programs: otherwise it collects all of it as often as time lets it.
  const flags = ['--expose-gc', '--heap-growing-percent=300', '--input-type=module'];
  const argv = [...flags, '-e', LETS_GO, new URL('./halves.ts', import.meta.url).href];
  const { stdout } = await promisify(execFile)(process.execPath, argv, { timeout: 60_000 });
  const { majors, bytes } = JSON.parse(stdout) as { majors: number; bytes: number };
  assert.equal(bytes, 2 * 1024 * 1024);
  // Ours, and one that may have begun before. It was 8 when each chunk kept the next one.
  assert.ok(majors >= 1 && majors <= 3, `${majors} collections of the whole heap`);
});
