import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { describe, it, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { EXIT } from './output.ts';
import { inOwnMounts } from './testing/mounts.ts';

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

test('a disk that is full is no mistake of whoever names a file on it', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-full-'));
  try {
    const script = 'mount -t tmpfs -o size=4k full "$0" || exit 77; exec "$@"';
    const line = [dir, process.execPath, main, 'certs', join(dir, 'pki')];
    const ended = inOwnMounts(t, script, line);
    if (!ended) return;
    assert.match(ended.stderr, /^isthmus: cannot write \S+pki: .*(ENOSPC|full|no space)/i);
    assert.equal(ended.status, EXIT.failed);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test('a file that is a mount on a full disk keeps its text', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-full-'));
  try {
    const [config, before] = [join(dir, 'config'), `# ${'x'.repeat(4050)}\n`];
    writeFileSync(config, '');
    writeFileSync(join(dir, 'before'), before);
    mkdirSync(join(dir, 'full'));
    // The text of it fills the file system, so more does not fit.
    const script = `cd "$0" && mount -t tmpfs -o size=4k full full && cp before full/config || exit 77
      mount --bind full/config config || exit 77
      "$@"; status=$?; cat config > after; exit $status`;
    const words = 'config set-context prod --address gateway.example.com:8095'.split(' ');
    const env = { ...process.env, ISTHMUSCONFIG: config };
    const ended = inOwnMounts(t, script, [dir, process.execPath, main, ...words], env);
    if (!ended) return;
    assert.match(ended.stderr, /^isthmus: cannot write \S+config: .*(ENOSPC|full|no space)/i);
    assert.equal(ended.status, EXIT.failed);
    assert.equal(readFileSync(join(dir, 'after'), 'utf8'), before);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

describe('a bug', { skip: process.versions.deno ? 'Deno preloads nothing that --import names' : false }, () => {
  const bug = 'throw new TypeError("a bug\\u202e")';
  const places: Readonly<Record<string, string>> = {
    'a command': `const { stringify } = JSON; JSON.stringify = (of, ...more) => { if (of.client) ${bug}; return stringify(of, ...more) }`,
    'what reads the command line': `process.argv.slice = () => { ${bug} }`,
    'a module': `import { registerHooks } from "node:module"; registerHooks({ load(url, ...more) { if (url.endsWith("/program.ts")) ${bug}; return more[1](url, more[0]) } })`,
    'what nobody waits for': `const { slice } = process.argv; process.argv.slice = (...of) => { setImmediate(() => { ${bug} }); return slice.apply(process.argv, of) }`,
  };
  for (const [place, wrong] of Object.entries(places))
    it(`in ${place} has an exit status of its own, and says where it is`, () => {
      const broken = `data:text/javascript,${encodeURIComponent(wrong)}`;
      const line = ['version', '--client', '-o', 'json'];
      const { status, stderr } = spawnSync(process.execPath, ['--import', broken, main, ...line]);
      assert.match(stderr.toString(), /^isthmus: TypeError: a bug\\u\{202e\}\n +at /);
      assert.equal(status, EXIT.failed);
    });
});
