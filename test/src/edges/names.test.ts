import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import {
  agentMember,
  connectThrough,
  echo,
  etcOf,
  type Flags,
  NameServer,
  newTrust,
  type Said,
  type Scope,
  scoped,
  silentListener,
  startServer,
  until,
} from '../harness/index.ts';

const DNS_PORT = 53;

/** Where the DNS server of a test listens: resolv.conf knows no ports. */
const SERVER = `127.53.${(process.pid >> 8) % 256}.${process.pid % 256}`;

/** The addresses of one name: the first answers late, the second never. */
const [LATE, DEAD] = ['127.0.0.2', '127.0.0.3'];

/** Returns why a process cannot have its own files in /etc here, or false. */
function missing(): string | false {
  if (process.platform !== 'linux') return 'mount namespaces need Linux';
  const { status } = spawnSync('unshare', ['-m', 'true']);
  return status === 0 ? false : 'no mount namespace may be made, that takes root';
}

/** Where a program has its own files in /etc. Neither they nor their mounts outlive it. */
function ownNames(scope: Scope, files: Readonly<Record<string, string>>) {
  const etc = etcOf(files);
  scope.defer(() => etc[Symbol.dispose]());
  const mounts = Object.keys(files).map((name) => `mount --bind ${etc.dir}/${name} /etc/${name}`);
  return { command: ['unshare', '-m', 'sh', '-c', `${mounts.join(' && ')} && exec "$@"`, 'sh'], host: '127.0.0.1' };
}

async function nameServer(scope: Scope, says: (name: string) => Said): Promise<NameServer> {
  const server = await new NameServer(says).listen(SERVER, DNS_PORT);
  scope.defer(() => server.close());
  return server;
}

/** A plane whose agents have resolv.conf as given. */
async function plane(scope: Scope, resolvers: readonly string[], flags: Flags = {}) {
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust);
  const agents = await Promise.all(
    resolvers.map((text, index) =>
      agentMember(scope, trust, `agent-${index}`, server.agentPort, {
        flags: { 'agent-id': `agent-${index}`, ...flags },
        place: ownNames(scope, {
          'resolv.conf': text,
          'nsswitch.conf': 'hosts: files dns\n',
          hosts: `127.0.0.1 localhost listed\n${LATE} both\n${DEAD} both\n`,
        }),
      }),
    ),
  );
  await Promise.all([server.program, ...agents.map(({ program }) => program)].map((program) => program.waitReady()));
  return { server, agents: agents.map(({ program }) => program) };
}

describe('names', { skip: missing() }, () => {
  test(
    'destinations whose DNS server is silent delay none whose server answers',
    scoped(async (scope) => {
      const names = await nameServer(scope, (name) => {
        if (name.startsWith('silent')) return 'silent';
        return name === 'healthy.ns.test' ? ['127.0.0.1'] : 'missing';
      });
      const { server } = await plane(scope, [`nameserver ${SERVER}\nsearch other.test ns.test\noptions ndots:5\n`]);
      const { port } = scope.use(await echo(scope));
      const dial = (host: string) => connectThrough(scope, { via: server.connect, destination: `${host}:${port}` });
      let answered = 0;
      const silent = Array.from({ length: 200 }, async (_, index) => {
        const { status } = await dial(`silent-${index}`);
        answered++;
        return status;
      });
      await until(() => new Set(names.asked.filter((name) => name.startsWith('silent'))).size === 200, {
        what: () => `200 silent names to be asked for, not ${names.asked.length}`,
      });
      assert.equal((await dial('healthy')).status, 200);
      assert.equal((await dial('healthy.ns.test')).status, 200);
      assert.equal((await dial('listed')).status, 200);
      assert.equal((await dial('nowhere.ns.test')).status, 502);
      assert.equal(answered, 0, 'the others waited for none of the silent ones');
      assert.deepEqual(new Set(await Promise.all(silent)), new Set([504]));
    }),
  );

  test(
    'a dial goes on to another agent if the first one has no DNS server that answers, and ends with a name that does not exist',
    scoped(async (scope) => {
      await nameServer(scope, (name) => (name === 'healthy.test' ? ['127.0.0.1'] : 'missing'));
      // A listener that says nothing.
      const mute = `127.54.${SERVER.split('.').slice(2).join('.')}`;
      const silent = await new NameServer(() => 'silent').listen(mute, DNS_PORT);
      scope.defer(() => silent.close());
      const { server } = await plane(scope, [
        `nameserver ${SERVER}\n`,
        `nameserver ${mute}\noptions timeout:1 attempts:1\n`,
      ]);
      const { port } = scope.use(await echo(scope));
      const dial = async (host: string) =>
        (await connectThrough(scope, { via: server.connect, destination: `${host}:${port}` })).status;
      const statuses = await Promise.all(Array.from({ length: 8 }, () => dial('healthy.test')));
      assert.deepEqual(statuses, Array(8).fill(200));
      assert.ok(silent.asked.length > 0, 'some dials went to the agent without DNS');
      assert.equal(await dial('nowhere.test'), 502);
    }),
  );

  test(
    'a name with an address that answers late and one that is dead is reached',
    scoped(async (scope) => {
      const { server } = await plane(scope, ['']);
      const late = await silentListener(scope, { host: LATE });
      await silentListener(scope, { host: DEAD, port: late.port });
      const dial = connectThrough(scope, { via: server.connect, destination: `both:${late.port}` });
      // Its first SYN is lost. The kernel sends another one after a second.
      const sent = () => [LATE, DEAD].every((address) => asksFor(address, late.port));
      await until(sent, { what: 'both addresses to be tried' });
      late.wake();
      assert.equal((await dial).status, 200);
    }),
  );

  test(
    'an agent with two servers whose names have no DNS server that answers is ready by the third',
    scoped(async (scope) => {
      await nameServer(scope, (name) => (name === 'localhost.test' ? ['127.0.0.1'] : 'silent'));
      await plane(scope, [`nameserver ${SERVER}\noptions timeout:30 attempts:5\n`], {
        'proxy-server-host': 'silent-1.test,silent-2.test,localhost',
      });
    }),
  );
});

/** Whether two have sent a SYN there that nobody has answered (proc_pid_net(5): state 2): the listener's own test, and the agent. */
function asksFor(address: string, port: number): boolean {
  const remote = `${hex(address.split('.').map(Number).reverse())}:${hex([port >> 8, port & 255])}`;
  const lines = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/));
  return lines.filter(([, , to, state]) => to === remote && state === '02').length >= 2;
}

function hex(bytes: readonly number[]): string {
  return Buffer.from(bytes).toString('hex').toUpperCase();
}
