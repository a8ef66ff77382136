// A busy neighbour of a plane, which takes its place in the processor's caches: `memory` walks through 64 MB, `code` runs through more
// machine code than any cache holds. It works for half of the time, so that what it takes is the caches rather than the processor.
import { setTimeout as pause } from 'node:timers/promises';

/** How long to work between pauses, in milliseconds. */
const SLICE = 2;
const LINE = 64;
const FUNCTIONS = 8000;

function walk(): () => number {
  const memory = new Uint8Array(64 * 1024 * 1024).fill(1);
  let at = 0;
  return () => {
    let sum = 0;
    for (let line = 0; line < 4096; line++) {
      sum += memory[at] as number;
      at = (at + LINE) % memory.length;
    }
    return sum;
  };
}

/** Calls each of many functions in turn. V8 compiles each for itself, about a kilobyte. */
function run(): () => number {
  const functions = Array.from({ length: FUNCTIONS }, (_, index) => {
    const steps = Array.from({ length: 16 }, (_, step) => `x = (x * ${index + step} + ${step}) % 65521;`).join('');
    return new Function('x', `${steps} return x;`) as (x: number) => number;
  });
  let at = 0;
  return () => {
    let x = 1;
    for (let call = 0; call < 256; call++) {
      x = (functions[at] as (x: number) => number)(x);
      at = (at + 1) % functions.length;
    }
    return x;
  };
}

const work = process.argv[2] === 'memory' ? walk() : run();
process.send?.(0);
process.once('disconnect', () => process.exit(0));
for (;;) {
  const until = performance.now() + SLICE;
  while (performance.now() < until) work();
  await pause(SLICE);
}
