import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  DEADLINE_MS,
  eventually,
  onDeno,
  type Program,
  ROOT,
  type Scope,
  scoped,
  sharedByFile,
  startCommand,
  unlessSlow,
} from './harness/index.ts';
import { asked } from './plane/operator.ts';

/** Ends what hangs; it judges no speed. */
const START_MS = 5 * 60_000;

interface Checked {
  readonly check: string;
  readonly outcome: string;
}

const CURL = spawnSync('curl', ['--version']).status === 0 ? false : 'curl is not installed';

/** Starts the demo as `npm start` does. In the end it is interrupted, so that it ends its programs; SIGKILL would leave them behind. */
function startDemo(scope: Scope, ...args: string[]): Program {
  const main = onDeno ? ['run', '-A', `${ROOT}apps/demo/src/main.ts`] : [`${ROOT}apps/demo/src/main.ts`];
  const demo = startCommand(scope, [process.execPath, ...main, ...args]);
  scope.defer(async () => {
    if (demo.running) demo.signal('SIGINT');
    await demo.ended();
  });
  return demo;
}

/** The first tests share a demo, and the last of them interrupts it. */
const shared = sharedByFile(async (scope) => {
  const demo = startDemo(scope);
  await demo.waitForLine(/^Dials, as they happen/);
  const curl = demo.lines.find((line) => line.startsWith('curl ')) ?? '';
  return { demo, curl };
});

test('the demo prints a curl line that works, and shows the dial', { skip: CURL }, async () => {
  const { demo, curl } = await shared();
  const { stdout } = await promisify(execFile)('bash', ['-c', curl], { timeout: DEADLINE_MS });
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
});

test('the demo prints lines of isthmus that ask its own plane', async () => {
  const { demo } = await shared();
  const lines = demo.lines.filter((line) => line.startsWith('npx isthmus ')).map((line) => line.replace(/ +#.*/, ''));
  assert.deepEqual(
    lines.map((line) => line.split(' ')[2]),
    ['status', 'watch', 'dial', 'explain', 'check'],
  );
  const ask = lines[0]?.split(' ').slice(2) ?? [];
  const adminPort = Number(ask.at(-1)?.split(':').at(-1));
  const { members } = await asked<{ members: { member: string }[] }>({ adminPort }, 'status');
  assert.deepEqual(
    members.map(({ member }) => member),
    ['server'],
  );
});

test('the demo leaves nothing behind after Ctrl-C', { skip: CURL }, async () => {
  const { demo, curl } = await shared();
  const [dir = ''] = /\S+isthmus-demo-[^/]+/.exec(curl) ?? [];
  assert.ok(existsSync(dir));
  demo.signal('SIGINT');
  assert.equal((await demo.ended()).code, 0);
  assert.ok(!existsSync(dir), `${dir} is still there`);
  assert.equal(demo.lines.at(-1), 'Ended. Dials that became tunnels: 1; dials that failed: 0.');
});

/** Kills every process whose pid the demo prints, one after the other. Returns their names. */
async function killEach(demo: Program): Promise<string[]> {
  const killed: string[] = [];
  for (const line of demo.lines.filter((each) => / pid \d+$/.test(each) && / {2}/.test(each))) {
    const [, name = '', pid] = /^(\S+) .* pid (\d+)$/.exec(line) ?? [];
    process.kill(Number(pid), 'SIGKILL');
    await demo.waitForLine(new RegExp(`^${name} was ended by SIGKILL: it is started again$`));
    await demo.waitForLine(new RegExp(`^${name} is ready again, as pid \\d+$`));
    killed.push(name);
  }
  return killed;
}

async function survives(scope: Scope, ...args: string[]): Promise<string[]> {
  const demo = startDemo(scope, ...args);
  const curl = await demo.waitForLine(/^curl /);
  await demo.waitForLine(/^Dials, as they happen/);
  const killed = await killEach(demo);
  const dial = async () => {
    const { stdout } = await promisify(execFile)('bash', ['-c', curl], { timeout: DEADLINE_MS });
    assert.match(stdout, /^Hello from the demo destination/);
  };
  await eventually(dial);
  demo.signal('SIGINT');
  assert.equal((await demo.ended()).code, 0, demo.tail);
  return killed;
}

test(
  'the demo starts each of its programs again that is killed, and carries dials again',
  { skip: CURL },
  scoped(async (scope) => assert.deepEqual(await survives(scope), ['server', 'agent'])),
);

test(
  'so does the demo of split tiers, also for its Redis',
  // At full size only: beside it, a hub is killed below, and the agent and the server above.
  { skip: CURL || redisMissing() || unlessSlow() },
  scoped(async (scope) => {
    const programs = ['gateway-1', 'gateway-2', 'hub-1', 'hub-2', 'agent-1', 'agent-2', 'redis-server'];
    assert.deepEqual(await survives(scope, '--split'), programs);
  }),
);

for (const [args, gateways] of [
  [[], 1],
  [['--', '--split'], 2],
] as const)
  test(
    `each line of curl that ${['npm start', ...args].join(' ')} prints can be pasted, and Ctrl-C leaves nothing behind`,
    {
      skip: onDeno ? 'npm runs Node' : CURL || (gateways > 1 && redisMissing()),
    },
    scoped(async (scope) => {
      const demo = spawn('npm', ['start', ...args], {
        cwd: ROOT,
        detached: true,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const ended = once(demo, 'close');
      // As a terminal does: to all of its group.
      const end = (signal: NodeJS.Signals) => demo.exitCode === null && process.kill(-(demo.pid ?? 0), signal);
      const late = setTimeout(end, START_MS, 'SIGKILL');
      scope.defer(async () => {
        end('SIGINT');
        await ended;
        clearTimeout(late);
      });
      const printed: string[] = [];
      let pasted = 0;
      for await (const line of createInterface({ input: demo.stdout })) {
        printed.push(line);
        if (!line.startsWith('curl ') || pasted === gateways) continue;
        const { stdout } = await promisify(execFile)('bash', ['-c', line], { timeout: DEADLINE_MS });
        assert.match(stdout, /Hello from the demo destination/, line);
        if (++pasted === gateways) end('SIGINT');
      }
      assert.deepEqual([pasted, await ended], [gateways, [0, null]], printed.join('\n'));
      const places = printed.flatMap((line) => line.match(/\S*isthmus-demo-[^/\s]+/) ?? []);
      const pids = printed.flatMap((line) => line.match(/(?<= pid )\d+$/) ?? []);
      assert.ok(places.length > 0 && pids.length > 0, printed.join('\n'));
      const left = [...places, ...pids.map((pid) => `/proc/${pid}`)].filter((path) => existsSync(path));
      assert.deepEqual(left, []);
    }),
  );

/** Longer than both hubs need to come back, in seconds. */
const DOWNLOAD_SECONDS = 15;

/** Kills a program of the demo, and waits until it is back. */
async function killOnce(demo: Program, name: string): Promise<void> {
  const line = demo.lines.find((each) => new RegExp(`^${name} .* pid \\d+$`).test(each));
  process.kill(Number(/\d+$/.exec(line ?? '')), 'SIGKILL');
  await demo.waitForLine(new RegExp(`^${name} is ready again, as pid \\d+$`));
}

test(
  'a download goes on while the hubs of the demo are killed, one after the other',
  // The gate shows the same of a plane of its own: plane/resume.test.ts.
  { skip: CURL || redisMissing() || unlessSlow() },
  scoped(async (scope) => {
    const demo = startDemo(scope, '--split');
    const line = (await demo.waitForLine(/^curl .*download/)).replace('/download/60', `/download/${DOWNLOAD_SECONDS}`);
    await demo.waitForLine(/^Dials, as they happen/);
    const { hostname, port } = new URL(/http:\S+$/.exec(line)?.[0] ?? '');
    const download = promisify(execFile)('bash', ['-c', `${line} -w '%{size_download}'`], { timeout: 3 * DEADLINE_MS });
    await demo.waitForLine(new RegExp(`→ ${hostname}:${port} through agent-\\d at hub-\\d in`));
    for (const hub of ['hub-1', 'hub-2']) await killOnce(demo, hub);
    assert.equal((await download).stdout, `${DOWNLOAD_SECONDS * 10 * 512 * 1024}`);
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
