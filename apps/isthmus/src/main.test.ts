import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import process from 'node:process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { EXIT } from './output.ts';

const main = fileURLToPath(new URL('./main.ts', import.meta.url));

// A file descriptor that takes nothing, as a full disk does.
const FULL = '/dev/full';

describe('what cannot be written', { skip: existsSync(FULL) ? false : `there is no ${FULL}` }, () => {
  const lines: readonly (readonly [line: string, status: number])[] = [
    ['--help', EXIT.failed],
    ['version --client', EXIT.failed],
    ['certs -o kubernetes --host hub.example', EXIT.failed],
    // As all programs that run for long.
    ['hold --help', 1],
  ];
  for (const [line, status] of lines)
    it(`is a failure: ${line}`, () => {
      const full = openSync(FULL, 'w');
      try {
        const done = spawnSync(process.execPath, [main, ...line.split(' ')], { stdio: ['ignore', full, 'pipe'] });
        assert.match(done.stderr.toString(), /no space left/i);
        assert.equal(done.status, status);
      } finally {
        closeSync(full);
      }
    });
});

describe('a bug', () => {
  it('has an exit status of its own, and says where it is', () => {
    const wrong =
      'const { stringify } = JSON; JSON.stringify = (of, ...more) => { if (of.client) throw new TypeError("a bug\\u202e"); return stringify(of, ...more) }';
    const broken = `data:text/javascript,${wrong}`;
    const { status, stderr } = spawnSync(process.execPath, [
      '--import',
      broken,
      main,
      'version',
      '--client',
      '-o',
      'json',
    ]);
    assert.match(stderr.toString(), /^isthmus: TypeError: a bug\\u\{202e\}\n +at /);
    assert.equal(status, EXIT.failed);
  });
});
