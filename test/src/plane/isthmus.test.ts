import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import tls from 'node:tls';
import { gunzipSync } from 'node:zlib';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import { adminApi } from '@isthmus/proto/admin';
import {
  agentMember,
  echo,
  eventually,
  type Flags,
  gatewayMember,
  greeter,
  hubMember,
  type Member,
  newTrust,
  peerFlags,
  refused,
  Scope,
  startAgent,
  startServer,
  until,
} from '../harness/index.ts';
import { adminOf, askFirst, carries, dial } from './dials.ts';
import { asked, isthmus, Session, startIsthmus } from './operator.ts';

/** A secret in the URL of Redis, which is a flag of gateways and hubs. */
const SECRET = 'hunter2-planted';

interface Made {
  readonly flags: readonly { readonly program: string; readonly flags: readonly string[] }[];
}

/** `--name=value` by name. */
function flagsOf(given: readonly string[]): Flags {
  return Object.fromEntries(given.map((flag) => flag.slice(2).split('=')));
}

interface Unanswered {
  readonly unanswered: readonly { readonly member: string; readonly reason: string }[];
}

/** Starts two gateways and two hubs with a Redis that needs a password, and an agent with a session to each hub. */
async function start(scope: Scope) {
  const trust = await newTrust(scope);
  const redis = await startRedis({ password: SECRET });
  scope.defer(() => redis.stop());
  const flags = { 'redis-url': redis.url.replace('//', `//:${SECRET}@`), plane: 'test' };
  const numbers = [1, 2];
  const gateways = await Promise.all(
    numbers.map(async (number) => {
      // Tunnels that cannot move keep a hub that drains.
      const own = { ...flags, ...(await peerFlags(trust)), 'server-id': `gateway-${number}`, 'resume-timeout': 0 };
      return gatewayMember(scope, trust, `gateway-${number}`, { flags: own });
    }),
  );
  const hubs = await Promise.all(
    numbers.map((number) => {
      const own = { ...flags, 'server-id': `hub-${number}`, 'graceful-shutdown-timeout': '7s' };
      return hubMember(scope, trust, `hub-${number}`, { flags: own });
    }),
  );
  const agent = await agentMember(scope, trust, 'agent', hubs[0]?.agentPort ?? 0, { flags: { 'agent-id': 'node-a' } });
  const all: Member[] = [...gateways, ...hubs].map(({ member }) => member);
  await Promise.all([...all, agent].map(({ program }) => program.waitReady()));
  await askFirst(
    scope,
    [...all, agent].map(({ program }) => program),
  );
  const [first, second] = gateways as [(typeof gateways)[0], (typeof gateways)[0]];
  await eventually(async () => {
    for (const { member } of [first, second]) assert.equal((await member.sessions()).length, 2);
  });
  return { trust, first, second, agent, hubs };
}

interface Listed {
  readonly dial: string;
  readonly hub: string;
  readonly destination: string;
  readonly bytesUp: number;
  readonly through: readonly { readonly role: string }[];
}

/** A tunnel that has carried `ping`, and is listed. A program that does not run for two seconds loses its links, and this plane's tunnels cannot move. */
function opened(scope: Scope, { member, ways }: Awaited<ReturnType<typeof start>>['first']) {
  return until(
    async () => {
      const { authority } = await echo(scope);
      const tunnel = await dial(scope, ways, 'connect', authority);
      await carries(tunnel, 'ping');
      const { tunnels } = await asked<{ tunnels: readonly Listed[] }>(member.program, 'tunnels');
      const listed = tunnels.find(({ destination }) => destination === authority);
      return listed && { tunnel, listed };
    },
    { what: 'a tunnel that is listed' },
  );
}

describe('isthmus', { skip: redisMissing() }, () => {
  const scope = new Scope();
  let plane: Awaited<ReturnType<typeof start>>;

  before(async () => {
    plane = await start(scope);
  });

  after(() => scope[Symbol.asyncDispose]());

  it('shows a whole plane from one address, and acts on it', async () => {
    const { trust, first } = plane;
    const { program } = first.member;
    const destination = await greeter(scope, 'hello');
    const { listed: open } = await opened(scope, first);

    const ids = ['gateway-1', 'gateway-2', 'hub-1', 'hub-2'];
    // On a slow machine, an agent's first byte may have been late, which is a refusal of the last five minutes.
    await eventually(async () => {
      type Status = { members: { member: string }[]; attention: { check: string }[] };
      const { status, members, attention } = await asked<Status>(program, 'status');
      const others = attention.filter(({ check }) => check !== 'refusals');
      assert.deepEqual([members.map(({ member }) => member), others], [ids, []]);
      assert.equal(status, attention.length > 0 ? 4 : 0);
    });
    // Once as the program itself; all others run in this process.
    const own = startIsthmus(scope, program, 'status');
    const [agents, hubs, explained, dialled, silent, series, failed, config] = await Promise.all([
      asked<{ agents: { agent: string; hubs: string[]; state: string }[] }>(program, 'agents'),
      asked<{ hubs: { hub: string; links: { link: string }[] }[] }>(program, 'hubs'),
      asked<{ gateways: { agent: string }[] }>(program, 'explain', destination.authority),
      isthmus(program, 'dial', destination.authority, '--agent', 'node-a', '--first-byte', '1m'),
      asked<{ ok: boolean; silentMs: number }>(program, 'dial', (await echo(scope)).authority, '--first-byte', '50ms'),
      asked<{ dials: unknown[] }>(program, 'dial', destination.authority, '--count', '3', '--interval', '1ms'),
      isthmus(program, 'dial', await refused()),
      asked<{ differences: unknown[] }>(program, 'config'),
    ]);
    assert.deepEqual(
      agents.agents.map(({ agent, hubs: of, state }) => ({ agent, of, state })),
      [{ agent: 'node-a', of: ['hub-1', 'hub-2'], state: 'ready' }],
    );
    assert.deepEqual(
      hubs.hubs.map(({ links }) => links.map(({ link }) => link)),
      [
        ['up', 'up'],
        ['up', 'up'],
      ],
    );
    assert.deepEqual([open.bytesUp, open.through.map(({ role }) => role).sort()], [4, ['gateway', 'hub']]);
    assert.deepEqual(
      explained.gateways.map(({ agent }) => agent),
      ['node-a', 'node-a'],
    );
    assert.equal(dialled.status, 0, dialled.out);
    assert.deepEqual([silent.ok, silent.silentMs, series.status, series.dials.length], [false, 50, 0, 3]);
    for (const phase of ['attempt', 'hub', 'agent', 'connect', 'first byte'])
      assert.match(dialled.out, new RegExp(`^ *${phase} .*[█▉▊▋▌▍▎▏]`, 'm'));
    assert.equal(failed.status, 1);
    assert.match(
      failed.out,
      /connection_refused: dial tcp .*\n[\s\S]*What to do:\n {2}- the agent reached the machine/,
    );
    // On a slow machine, the registry may be late for a moment, which is a failure while it lasts.
    await eventually(async () => {
      const check = await asked<{ failed: number; results: { check: string }[] }>(program, 'check');
      assert.deepEqual([check.status, check.failed], [0, 0], JSON.stringify(check.results));
      assert.equal(check.results.filter((each) => each.check === 'dials').length, 1);
    });
    assert.deepEqual([config.status, config.differences], [0, []]);
    assert.match(String((await own.ended()).code), /^[04]$/);
    assert.match(own.lines.join('\n'), /^Plane test: 4 members\n\nMEMBER .*\ngateway-1 +gateway +yes/);

    const versions = await isthmus(program, 'version');
    assert.match(versions.out, /^isthmus \S+, node \S+\n\nMEMBER .*\ngateway-1 +gateway +\d+\.\d+\.\d+ +\w+ \d/);
    const came = await isthmus(program, 'events', '--for', 'node-a', '--no-headers');
    // On a busy machine, it may have lost a session, and come again.
    const sessions = [...came.out.matchAll(/ came +agent\/node-a +default +session with (\S+)/g)];
    assert.deepEqual(new Set(sessions.map(([, hub]) => hub)), new Set(['hub-1', 'hub-2']), came.out);
    const kinds = await asked<{ events: { type: string; kind: string; name: string; detail: string }[] }>(
      program,
      'events',
    );
    const began = kinds.events.filter(({ detail }) => detail === 'started').map(({ kind, name }) => `${kind}/${name}`);
    assert.deepEqual(began.sort(), ['gateway/gateway-1', 'gateway/gateway-2', 'hub/hub-1', 'hub/hub-2']);
    // The hubs' own starts are told first, so the command leaves these out.
    const { events: linked } = await adminOf(scope, program).listEvents({});
    const links = linked.filter(({ role }) => role === adminApi.Role.ROLE_HUB).map(({ id }) => id);
    assert.deepEqual(new Set(links), new Set(['hub-1', 'hub-2']));
    assert.equal((await isthmus(program, 'agents', 'node-b')).status, 1);
    assert.equal((await isthmus(program, 'hubs', 'hub-1', '-o', 'name')).out, 'hub/hub-1\n');

    const plan = await asked<{ stranded: number; moves: unknown[]; gracefulMs: number }>(
      program,
      'drain',
      'hub-1',
      '--dry-run',
    );
    assert.deepEqual([plan.status, plan.stranded, plan.moves.length, plan.gracefulMs], [0, 0, 1, 7000]);
    assert.equal((await isthmus(program, 'quarantine', 'node-a', '--reason', 'a test')).status, 0);
    await eventually(async () => assert.equal((await isthmus(program, 'explain', 'x:1')).status, 1));
    assert.match((await isthmus(program, 'quarantine')).out, /node-a +default +a test/);
    assert.equal((await isthmus(program, 'quarantine', 'node-a', '--lift')).status, 0);
    const { listed: kicked } = await opened(scope, first);
    assert.equal((await isthmus(program, 'kick', 'tunnel', kicked.dial)).status, 0);
    assert.equal((await isthmus(program, 'kick', 'tunnel', kicked.dial)).status, 1);
    assert.match(
      (await isthmus(program, 'log-level', 'debug', '--for', '1m')).out,
      /hub-2 +debug +info +\d{4}-.* +info/,
    );

    const file = join(trust.dir, 'diag.tar.gz');
    const diag = await asked<{ files: string[]; missing: string[] }>(program, 'diag', file);
    assert.deepEqual([diag.status, diag.missing], [0, []]);
    const texts = gunzipSync(readFileSync(file)).toString('latin1');
    for (const id of ids) assert.ok(diag.files.includes(`members/${id}/metrics.txt`), id);
    for (const there of ['redis-url', '"msg":"ready"', 'isthmus_', destination.authority])
      assert.ok(texts.includes(there), there);
    for (const secret of [SECRET, 'PRIVATE KEY']) assert.ok(!texts.includes(secret), `${secret} is in the archive`);
  });

  it('still shows all other members when a replica hangs, dies or comes back', async () => {
    const { first, second } = plane;
    const { program } = first.member;
    const destination = await echo(scope);

    const watch = new Session(program, ['watch', '-o', 'json']);
    scope.defer(() => watch.interrupt());
    const seen = async (through: Member) => {
      const before = watch.out.length;
      await eventually(async () => {
        assert.equal((await isthmus(program, 'dial', destination.authority, '--gateway', through.id)).status, 0);
        assert.ok(watch.out.slice(before).includes(`"gateway":"${through.id}"`), `a dial of ${through.id}`);
      });
    };
    await Promise.all([seen(first.member), seen(second.member)]);

    // The second gateway hangs: a client waits for it until it dies. All begin at once, before its record expires.
    second.member.program.signal('SIGSTOP');
    const waiting = isthmus(program, 'status', '--timeout', '60s');
    const told = isthmus(program, 'tunnels', '--timeout', '60s');
    const impatient = await asked<Unanswered>(program, 'agents', '--timeout', '5s');
    assert.equal(impatient.status, 3);
    const missed = impatient.unanswered.find(({ member }) => member === 'gateway-2');
    assert.match(missed?.reason ?? '', /no answer within 5 s: it hangs|silent for .* s, even to PING|has no link to/);
    await seen(first.member);
    await second.member.kill();
    const { status, out: text } = await waiting;
    assert.equal(status, 3);
    assert.match(text, /^Plane test: 4 members\n/);
    assert.match(text, /\n1 member did not answer:\n {2}gateway-2 at 127\.0\.0\.1:\d+: /);
    for (const id of ['gateway-1', 'hub-1', 'hub-2']) assert.match(text, new RegExp(`^${id} .* yes `, 'm'));
    assert.equal((await told).status, 3);

    await seen(first.member);
    await second.member.restart();
    await seen(second.member);
    assert.equal(await watch.interrupt(), 0);
  });

  it('makes certificates that let in a server, an agent and an operator, and nobody else', async () => {
    const { trust, first } = plane;
    const pki = join(trust.dir, 'pki');
    const made = await asked<Made>(first.member.program, 'certs', pki, '--agent', 'node-b');
    const given = (name: string) => made.flags.find(({ program }) => program.startsWith(name))?.flags ?? [];
    const server = await startServer(scope, trust, flagsOf(given('proxy-server')));
    await startAgent(scope, trust, server.agentPort, { ...flagsOf(given('proxy-agent')), 'agent-id': 'node-b' });
    const operator = given('isthmus');
    await eventually(async () => {
      const { status, out } = await isthmus(server.program, 'agents', ...operator);
      assert.deepEqual([status, /^node-b .* ready /m.test(out)], [0, true], out);
    });
    const others = [
      [],
      [
        operator[0] ?? '',
        ...given('proxy-agent')
          .filter((flag) => /^--agent-(cert|key)=/.test(flag))
          .map((flag) => flag.replace('--agent-', '--')),
      ],
    ];
    for (const flags of others) {
      const { status, err } = await isthmus(server.program, 'agents', ...flags);
      assert.equal(status, 3, flags.join(' '));
      assert.match(err, /no member answers: .*--cert and --key\)/);
    }
  });

  it('shows refused clients but not its own probes', async () => {
    const { trust, hubs, first } = plane;
    const { program } = first.member;
    const [hub] = hubs as [(typeof hubs)[0]];
    const refusalsOf = (of: Member) => of.program.logs.filter(({ msg }) => msg === 'refused');
    const before = hubs.map(({ member }) => refusalsOf(member).length);
    // On a slow machine, a probe that takes longer counts as a port that does not listen, and as a stranger's.
    const check = () =>
      asked<{ results: { check: string; outcome: string; about: string; detail: string }[] }>(
        program,
        ...['check', '--timeout', '60s'],
      );
    const { results } = await check();
    const open = results.filter((each) => each.check === 'ports' && each.outcome === 'pass');
    assert.equal(open.length, 4);
    for (const { detail } of open) {
      assert.match(detail, /^it listens, and agrees with this program on TLSv1\.3, TLS_\w+(, X25519\w*)?$/);
    }
    // Another client's handshake, after those of the check.
    const stranger = tls.connect({
      port: hub.agentPort,
      ca: readFileSync(trust.agents.cert),
      rejectUnauthorized: false,
    });
    // Who asks for nothing may be a balancer's health check.
    stranger.write('GET / HTTP/1.1\r\n\r\n');
    await new Promise((closed) =>
      stranger
        .on('error', () => {})
        .on('close', closed)
        .resume(),
    );
    await eventually(async () => {
      const { out, status } = await isthmus(program, 'status');
      assert.match(out, /\nRejected recently:\n {2}hub-1, port for agents: refused \S+, \d+ \S+ ago: \S.*\n/);
      assert.equal(out.match(/, port for /g)?.length, 1, out);
      // Something needs attention.
      assert.equal(status, 4, out);
    });
    // A line of the log may come later than the answer to `status`.
    await eventually(() => {
      const more = hubs.map(({ member }, index) => refusalsOf(member).length - (before[index] ?? 0));
      assert.deepEqual(more, [1, 0]);
    });
    // On a slow machine, the registry may be late for a moment, which is a failure while it lasts.
    await eventually(async () => {
      const again = await check();
      const told = again.results.filter((each) => each.check === 'refusals');
      assert.deepEqual(
        told.map(({ about, outcome }) => [about, outcome]),
        [['hub-1, port for agents', 'warn']],
      );
      const failed = again.results.filter(({ outcome }) => outcome === 'fail');
      assert.deepEqual([failed, again.status], [[], 0]);
    });
  });

  it('dials from the gateway at its address', async () => {
    const destination = await echo(scope);
    for (const { member } of [plane.first, plane.second]) {
      const { gateway } = await asked<{ gateway: string }>(member.program, 'dial', destination.authority);
      assert.equal(gateway, member.id);
    }
  });

  it('does not report a drain as a fault', async () => {
    const { first } = plane;
    const { program } = first.member;
    const { tunnel, listed } = await opened(scope, first);
    const { hub } = listed;
    assert.equal((await isthmus(program, 'drain', hub)).status, 0);
    await eventually(async () => {
      const { status, out, err } = await isthmus(program, 'hubs');
      assert.match(out, new RegExp(`^${hub} .* draining `, 'm'), err);
      assert.doesNotMatch(out, /No link/);
      assert.equal(status, 0, out);
      // The tunnel keeps the hub alive, but its gateways have already closed their links.
      assert.match(out, new RegExp(`^${hub} .* 0 of 0 `, 'm'), out);
    });
    await carries(tunnel, 'undisturbed');
  });
});
