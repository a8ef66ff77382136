import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { freePort, newTrust, Program, type ProgramName, type Scope, scoped, tempDir } from './harness/index.ts';
import { commandOf, IMAGE_ENV } from './harness/runtime.ts';
import { root } from './k8s/manifests.ts';

const UNITS = { agent: 'proxy-agent', server: 'proxy-server' } as const;
const ANALYZE = 'systemd-analyze';
const missing = spawnSync(ANALYZE, ['--version']).status === 0 ? undefined : `${ANALYZE} is not installed`;

/** The exposure that is allowed, by systemd-analyze's own measure: 0 is none, 100 a unit without any of these settings. */
const EXPOSURE = 20;

function unit(name: keyof typeof UNITS): string {
  return readFileSync(join(root, 'systemd', `isthmus-${name}.service`), 'utf8');
}

for (const name of Object.keys(UNITS) as (keyof typeof UNITS)[]) {
  test(`isthmus-${name}.service tells malloc and Node what the image tells them`, () => {
    const { MALLOC_ARENA_MAX: arenas, NODE_OPTIONS: options } = IMAGE_ENV;
    const says = `Environment=MALLOC_ARENA_MAX=${arenas} "NODE_OPTIONS=${options}"`;
    assert.ok(unit(name).split('\n').includes(says), says);
  });

  test(
    `systemd finds no fault with isthmus-${name}.service, and little that it leaves open`,
    { skip: missing },
    scoped(async (scope) => {
      const path = join(await tempDir(scope), `isthmus-${name}.service`);
      // Of the files that it names, only the program must exist.
      writeFileSync(path, unit(name).replace(`/usr/bin/${UNITS[name]}`, process.execPath));
      const verified = spawnSync(ANALYZE, ['verify', '--man=no', path], { encoding: 'utf8', timeout: 60_000 });
      const about = verified.stderr.split('\n').filter((line) => line.includes('isthmus'));
      assert.deepEqual([verified.status, about], [0, []]);
      const args = ['security', '--offline=true', `--threshold=${EXPOSURE}`, '--no-pager', path];
      const judged = spawnSync(ANALYZE, args, { encoding: 'utf8', timeout: 60_000 });
      assert.equal(
        judged.status,
        0,
        `${judged.stdout
          .split('\n')
          .filter((line) => line.includes('✗'))
          .join('\n')}${judged.stderr}`,
      );
    }),
  );
}

test(
  'systemd finds no fault with the agent of one address, and its instances share no path',
  { skip: missing },
  scoped(async (scope) => {
    const dir = await tempDir(scope);
    const program = (text: string) => text.replaceAll('/usr/bin/proxy-agent', process.execPath);
    const changes = readFileSync(join(root, 'k8s/recipes/one-address/node/isthmus-agent.conf'), 'utf8');
    mkdirSync(join(dir, 'isthmus-agent@.service.d'));
    writeFileSync(join(dir, 'isthmus-agent@.service'), program(unit('agent')));
    writeFileSync(join(dir, 'isthmus-agent@.service.d/api-server.conf'), program(changes));
    const env = { ...process.env, SYSTEMD_UNIT_PATH: `${dir}:` };
    const args = ['verify', '--man=no', 'isthmus-agent@a.service'];
    const verified = spawnSync(ANALYZE, args, { encoding: 'utf8', timeout: 60_000, env });
    const about = verified.stderr.split('\n').filter((line) => line.includes('isthmus'));
    assert.deepEqual([verified.status, about], [0, []]);
    const paths = changes.split('\n').filter((line) => /^[^#]*isthmus-agent/.test(line));
    assert.ok(paths.length > 0);
    for (const path of paths) assert.match(path, /isthmus-agent-%i/);
  }),
);

test('the agent of one address that ends at its start is not waited for', () => {
  const changes = readFileSync(join(root, 'k8s/recipes/one-address/node/isthmus-agent.conf'), 'utf8');
  const [, script = ''] = /^ExecStartPost=\/bin\/sh -c '(.*)'$/m.exec(changes) ?? [];
  assert.match(script, /^until \[ -S /);
  const { pid } = spawnSync('true');
  // As systemd does it: of one that has ended already, the process id is unset.
  for (const main of [String(pid), '']) {
    const words = ['-c', script.replaceAll(/\$\{MAINPID\}/g, main)];
    assert.equal(spawnSync('/bin/sh', words, { timeout: 60_000 }).status, 1);
  }
});

/** The program of a unit, with its arguments as systemd would expand them, and its directories in `dir`. */
function start(
  scope: Scope,
  name: keyof typeof UNITS,
  dir: string,
  variables: Record<string, string>,
  healthPort: number,
): Program {
  const [, line = ''] = /^ExecStart=((?:.*\\\n)*.*)$/m.exec(unit(name)) ?? [];
  const [program = '', ...words] = line.replaceAll('\\\n', ' ').trim().split(/\s+/);
  assert.equal(program, `/usr/bin/${UNITS[name]}`);
  const runtime = /^RuntimeDirectory=(.+)$/m.exec(unit(name))?.[1] ?? '';
  mkdirSync(join(dir, runtime));
  const args = words.flatMap((word) => {
    if (word === '$FLAGS') return (variables.FLAGS ?? '').split(' ');
    const whole = word.replaceAll(
      /\$\{(\w+)\}/g,
      (_, key: string) => variables[key] ?? assert.fail(`${key} is not set`),
    );
    return whole
      .replaceAll('%H', 'edge-1')
      .replace(`=/run/${runtime}/`, `=${dir}/${runtime}/`)
      .replace('=/etc/isthmus/', `=${dir}/`);
  });
  for (const arg of args) assert.doesNotMatch(arg, /[$%]|=\/(run|etc)\//);
  return scope.use(new Program(UNITS[name], commandOf(UNITS[name] as ProgramName), { args, healthPort }));
}

test(
  'the programs start with the flags of their units, and the agent finds the server',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const dir = await tempDir(scope);
    const [server, agent] = [await trust.agents.server(), await trust.agents.client('edge-1')];
    const files = {
      'ca.crt': trust.agents.cert,
      'agents-ca.crt': trust.agents.cert,
      'agent.crt': agent.cert,
      'agent.key': agent.key,
      'server.crt': server.cert,
      'server.key': server.key,
    };
    for (const [name, path] of Object.entries(files)) copyFileSync(path, join(dir, name));
    const [agentPort, health, agentHealth] = [await freePort(), await freePort(), await freePort()];
    start(scope, 'server', dir, { FLAGS: `--agent-port=${agentPort} --health-port=${health}` }, health);
    const variables = {
      SERVERS: '127.0.0.1',
      FLAGS: `--proxy-server-port=${agentPort} --health-server-port=${agentHealth}`,
    };
    await start(scope, 'agent', dir, variables, agentHealth).waitReady();
  }),
);
