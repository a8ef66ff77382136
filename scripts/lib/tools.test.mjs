import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';

test('packages are installed once the locks are free, and a failure shows what apt-get said', async (context) => {
  const place = mkdtempSync(join(tmpdir(), 'isthmus-tools-'));
  context.after(() => rmSync(place, { recursive: true }));
  const apt = `#!/bin/sh\necho "asked: $*" >&2\n[ "$1" = update ] || { echo "E: Unable to locate package $7" >&2; exit 100; }\n`;
  writeFileSync(join(place, 'apt-get'), apt);
  chmodSync(join(place, 'apt-get'), 0o755);
  const code = `import { installPackages } from '${new URL('tools.mjs', import.meta.url)}'; await installPackages(['nope']);`;
  const env = { ...process.env, PATH: `${place}${delimiter}${process.env.PATH}` };
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { env });
  const said = await text(child.stderr);
  assert.match(said, /^Installing nope \(apt-get\) \.\.\.$/m);
  assert.match(said, /^ {2}asked: install -o DPkg::Lock::Timeout=300 -y .* nope$/m);
  assert.match(said, /^apt-get install .* ended with 100:$/m);
  assert.match(said, /^ {2}E: Unable to locate package /m);
});
