import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ROOT } from '../harness/index.ts';
import ceilings from './ceilings.json' with { type: 'json' };

/** Tests, and what only they use. */
const OF_TESTS = /\.test\.(tsx?|mjs)$|\/testing(\.ts|\/)/;

/** Lines of sources, without tests: of a package, or of all below a directory. */
function linesOf(directory: string): number {
  const below = existsSync(join(ROOT, directory, 'package.json')) ? `${directory}/src` : directory;
  const files = globSync(`${below}/**/*.{ts,tsx,mjs,css,html}`, { cwd: ROOT });
  const lines = files
    .filter((file) => !OF_TESTS.test(file))
    .map((file) => readFileSync(join(ROOT, file), 'utf8').split('\n').length - 1);
  return lines.reduce((sum, each) => sum + each, 0);
}

describe('The lines of a room stay below the ceiling of ceilings.json', () => {
  for (const { room, ceiling, budget } of ceilings.lines)
    test(room.join(', '), (context) => {
      const lines = room.reduce((sum, directory) => sum + linesOf(directory), 0);
      context.diagnostic(`${lines} lines; the budget is ${budget}`);
      assert.ok(lines > 0, 'no sources were found');
      assert.ok(lines <= ceiling, `${lines} lines are more than ${ceiling}: take some out, or raise it and say why`);
    });
});
