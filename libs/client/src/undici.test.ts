import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

/** The Node whose `fetch` is tried: in CI also the oldest. */
const NODE = process.env.ISTHMUS_NODE ?? process.execPath;
const UNDICI = import.meta.resolve('undici');
const PROGRAM_MS = 60_000;

/** Fetches through a gateway that answers for itself, and prints what comes. @param load loads the package undici, or does not */
const program = (load: string, path: string) => `
  import { createServer } from 'node:net';
  import { createDialer } from ${JSON.stringify(import.meta.resolve('./dialer.ts'))};
  ${load}
  const gateway = createServer((socket) => {
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 Connection Established\\r\\n\\r\\n');
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\\r\\ncontent-length: 6\\r\\n\\r\\nplane\\n'));
    });
  });
  const path = ${JSON.stringify(path)};
  await new Promise((resolve) => gateway.listen(path, resolve));
  const dispatcher = createDialer({ gateway: 'unix:' + path }).dispatcher();
  process.stdout.write(await (await fetch('http://node-1/', { dispatcher })).text());
  await dispatcher.close();
  gateway.close();
`;

const LOADS = {
  'does not load the package undici': '',
  'loads the package undici first': `await import(${JSON.stringify(UNDICI)});`,
  'loads the package undici after a fetch': `await fetch('data:,'); await import(${JSON.stringify(UNDICI)});`,
  "takes the package's fetch for its own": `(await import(${JSON.stringify(UNDICI)})).install();`,
};

for (const [name, load] of Object.entries(LOADS))
  test(`fetch goes through the plane in a program that ${name}`, {
    skip: process.versions.deno !== undefined && 'Deno has no undici inside',
  }, async (context) => {
    const place = mkdtempSync(join(tmpdir(), 'isthmus-undici-'));
    context.after(() => rmSync(place, { recursive: true, force: true }));
    const argv = ['--no-warnings', '--input-type=module', '-e', program(load, join(place, 'gateway.sock'))];
    const { stdout } = await promisify(execFile)(NODE, argv, { timeout: PROGRAM_MS });
    assert.equal(stdout, 'plane\n');
  });
