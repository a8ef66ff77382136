import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { DEADLINE_MS, onDeno, type Program, ROOT, type Scope, scoped, startCommand } from './harness/index.ts';
import { asked } from './plane/operator.ts';

interface Checked {
  readonly check: string;
  readonly outcome: string;
}

const CURL = spawnSync('curl', ['--version']).status === 0 ? false : 'curl is not installed';

/** Starts the demo as `npm start` does. In the end it is interrupted, so that it ends its programs; SIGKILL would leave them behind. */
function startDemo(scope: Scope, ...args: string[]): Program {
  const main = onDeno ? ['run', '-A', `${ROOT}apps/demo/src/main.ts`] : [`${ROOT}apps/demo/dist/main.js`];
  const demo = startCommand(scope, [process.execPath, ...main, ...args]);
  scope.defer(async () => {
    if (demo.running) demo.signal('SIGINT');
    await demo.ended();
  });
  return demo;
}

test(
  'the demo prints a curl line that works, shows the dial, and leaves nothing behind after Ctrl-C',
  { skip: CURL },
  scoped(async (scope) => {
    const demo = startDemo(scope);
    const line = await demo.waitForLine(/^curl /);
    const { stdout } = await promisify(execFile)('bash', ['-c', line], { timeout: DEADLINE_MS });
    assert.match(stdout, /^Hello from the demo destination: GET \/, dialled from 127\.0\.0\.1:\d+\n$/);
    await demo.waitForLine(
      /CN=demo-caller \(http-connect\) at server → 127\.0\.0\.1:\d+ through agent at server in [\d.]+ ms$/,
    );
    const guide = await demo.waitForLine(/^server .* admin /);
    const adminPort = Number(/admin \S+:(\d+)/.exec(guide)?.[1]);
    const { results } = await asked<{ results: Checked[] }>({ adminPort }, 'check', '--no-dials');
    // On a busy machine, the clock of a member that answers late looks wrong.
    const found = results.filter(({ check, outcome }) => outcome !== 'pass' && check !== 'clocks');
    assert.deepEqual(found, []);
    const [dir = ''] = /\S+isthmus-demo-[^/]+/.exec(line) ?? [];
    assert.ok(existsSync(dir));
    demo.signal('SIGINT');
    assert.equal((await demo.ended()).code, 0);
    assert.ok(!existsSync(dir), `${dir} is still there`);
    assert.equal(demo.lines.at(-1), 'Ended. Dials that became tunnels: 1; dials that failed: 0.');
  }),
);

test(
  'when a program of the demo dies, the demo shows its last output and ends',
  scoped(async (scope) => {
    const demo = startDemo(scope);
    const line = await demo.waitForLine(/^agent .* pid \d+$/);
    process.kill(Number(line.split(' ').at(-1)), 'SIGKILL');
    assert.equal((await demo.ended()).code, 1);
    assert.ok(demo.lines.includes('agent was ended by SIGKILL'), demo.tail);
    assert.ok(
      demo.lines.some((each) => each.includes('server connected')),
      demo.tail,
    );
  }),
);

test(
  'the demo refuses an unknown argument in one line',
  scoped(async (scope) => {
    const demo = startDemo(scope, '--spilt');
    assert.equal((await demo.ended()).code, 1);
    assert.deepEqual(demo.lines, ['unknown argument --spilt: npm start takes --split and --help']);
  }),
);
