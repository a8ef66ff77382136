import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { adminApi } from '@isthmus/proto/admin';
import {
  allInOne,
  type Back,
  echo,
  eventually,
  type Front,
  type Program,
  type Scope,
  scoped,
  split,
  startAgent,
  within,
} from '../harness/index.ts';
import { adminOf, askFirst, carries, closed, dial } from './dials.ts';

const { ROLE_GATEWAY, ROLE_HUB, ROLE_AGENT } = adminApi.Role;

function hubIdOf({ logs }: Program): string {
  return String(logs.find(({ msg }) => msg === 'ready')?.hub);
}

async function tunnelsOf(scope: Scope, program: Program): Promise<adminApi.Tunnel[]> {
  return (await adminOf(scope, program).listTunnels({})).tunnels;
}

test(
  'an operator can follow a tunnel through gateway, hub and agent, and drain each',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const plane = await split(scope, { gateways: 1, hubs: 1, agents: 2 });
    const [gateway] = plane.gateways as [Front];
    const [hub] = plane.hubs as [Back];
    const destination = await echo(scope);
    await askFirst(scope, [gateway.program, hub.program, ...plane.agents]);
    const tunnel = await dial(scope, gateway, 'mtls', destination.authority);
    await carries(tunnel, 'first');

    const [atGateway, ...others] = await tunnelsOf(scope, gateway.program);
    assert.ok(atGateway);
    assert.deepEqual(others, []);
    assert.equal(atGateway.role, ROLE_GATEWAY);
    assert.equal(atGateway.destination, destination.authority);
    assert.equal(atGateway.tenant, 'default');
    assert.match(atGateway.caller, /CN=kube-apiserver/);
    assert.deepEqual([atGateway.bytesUp, atGateway.bytesDown], [5, 5]);
    const agent = plane.agents[Number(atGateway.agentId.at(-1))] as Program;
    const along = await Promise.all([hub.program, agent].map((program) => tunnelsOf(scope, program)));
    assert.deepEqual(
      along.map((list) => list.map(({ role, dialId }) => ({ role, dialId }))),
      [ROLE_HUB, ROLE_AGENT].map((role) => [{ role, dialId: atGateway.dialId }]),
    );
    await carries(tunnel, 'second');
    for (const program of [gateway.program, hub.program, agent]) {
      const [now] = await tunnelsOf(scope, program);
      assert.deepEqual([now?.bytesUp, now?.bytesDown], [11, 11], `bytes move at ${program.name}`);
    }

    const held = (await adminOf(scope, hub.program).listSessions({})).sessions;
    assert.deepEqual(held.map(({ agentId }) => agentId).sort(), ['agent-0', 'agent-1']);
    const ids = (sessions: typeof held) => sessions.map(({ sessionId }) => sessionId).sort();
    await eventually(async () => {
      const known = (await adminOf(scope, gateway.program).listSessions({})).sessions;
      assert.deepEqual(ids(known), ids(held));
    });
    assert.ok(held.every(({ protocol }) => protocol === adminApi.LinkProtocol.LINK_PROTOCOL_LINK));
    const { sessionId } = atGateway;
    assert.equal((await adminOf(scope, hub.program).listTunnels({ sessionId })).tunnels.length, 1);
    assert.equal((await adminOf(scope, hub.program).listTunnels({ tenant: 'other' })).tunnels.length, 0);
    assert.deepEqual((await adminOf(scope, hub.program).listSessions({ tenant: 'other' })).sessions, []);

    // A draining agent takes dials only while it is the only one.
    assert.deepEqual(await adminOf(scope, agent).drain({}), { sessions: 1, tunnels: 1, plan: undefined });
    await eventually(async () => {
      const [line] = hub.program.logs.filter(({ msg }) => msg === 'session drains');
      assert.equal(line?.agent, atGateway.agentId);
    });
    assert.equal((await agent.get('/readyz')).status, 503);

    assert.deepEqual(await adminOf(scope, gateway.program).drain({}), { sessions: 0, tunnels: 1, plan: undefined });
    assert.equal((await gateway.program.get('/readyz')).status, 500);
    await assert.rejects(dial(scope, gateway, 'connect', destination.authority), { code: 'ENOENT' });
    await eventually(() => assert.rejects(dial(scope, gateway, 'mtls', destination.authority), /503 .*shutting down/));
    assert.deepEqual(await adminOf(scope, hub.program).drain({}), { sessions: 2, tunnels: 1, plan: undefined });
    assert.equal((await hub.program.get('/readyz')).status, 500);

    // The running tunnel goes on, and no program exits.
    await carries(tunnel, 'third');
    for (const program of [gateway.program, hub.program, agent]) assert.ok(program.running, program.name);
    assert.deepEqual(await adminOf(scope, gateway.program).drain({}), { sessions: 0, tunnels: 1, plan: undefined });
    tunnel.destroy();
    await eventually(async () => assert.deepEqual(await tunnelsOf(scope, gateway.program), []));
  }),
);

test(
  'an operator lists and drains the all-in-one server',
  scoped(async (scope) => {
    const { server } = await allInOne(scope);
    const admin = adminOf(scope, server.program);
    await askFirst(scope, [server.program]);
    const destination = await echo(scope);
    const tunnel = await dial(scope, server, 'grpc', destination.authority);
    await carries(tunnel);
    const { tunnels } = await admin.listTunnels({});
    assert.deepEqual(
      tunnels.map(({ role, agentId, bytesUp, bytesDown }) => ({ role, agentId, bytesUp, bytesDown })),
      [{ role: ROLE_GATEWAY, agentId: 'agent-0', bytesUp: 4, bytesDown: 4 }],
    );
    const { sessions } = await admin.listSessions({});
    assert.deepEqual(
      sessions.map(({ agentId, sessionId }) => ({ agentId, sessionId })),
      [{ agentId: 'agent-0', sessionId: tunnels[0]?.sessionId }],
    );
    assert.deepEqual(await admin.drain({}), { sessions: 1, tunnels: 1, plan: undefined });
    await assert.rejects(dial(scope, server, 'connect', destination.authority), { code: 'ENOENT' });
    await eventually(() => assert.rejects(dial(scope, server, 'mtls', destination.authority), /503 .*shutting down/));
    await carries(tunnel, 'still here');
    assert.ok(server.program.running);
  }),
);

test(
  'a dry run of a drain says where agents could go and which tunnels run, and changes nothing',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const plane = await split(scope, {
      gateways: 1,
      hubs: 2,
      agents: 1,
      hubFlags: { 'graceful-shutdown-timeout': '7s' },
    });
    const [gateway] = plane.gateways as [Front];
    const [hub] = plane.hubs as [Back];
    const single = { 'agent-id': 'single', 'session-count': 1, 'proxy-server-port': hub.agentPort };
    await startAgent(scope, plane.trust, hub.agentPort, single);
    const known = async () => (await adminOf(scope, gateway.program).listSessions({})).sessions;
    await eventually(async () => assert.equal((await known()).length, 3));
    const destination = await echo(scope);
    const tunnel = await dial(scope, gateway, 'mtls', destination.authority);
    await carries(tunnel);

    for (const { program } of plane.hubs) {
      await eventually(async () => {
        const { sessions, tunnels, plan } = await adminOf(scope, program).drain({ dryRun: true });
        const held = (await known()).filter(({ hubId }) => hubId === hubIdOf(program));
        const lonely = held.filter(({ agentId }) => agentId === 'single').length;
        assert.deepEqual([sessions, plan?.stranded, plan?.gracefulMs], [held.length, lonely, 7000]);
        for (const move of plan?.moves ?? []) assert.equal(move.elsewhere, move.agentId === 'single' ? 0 : 1);
        assert.equal(plan?.running.length, tunnels);
      });
      assert.equal((await program.get('/readyz')).status, 200);
    }
    const { tunnels, plan } = await adminOf(scope, gateway.program).drain({ dryRun: true });
    assert.deepEqual([tunnels, plan?.moves, plan?.running[0]?.destination], [1, [], destination.authority]);
    await carries(tunnel, 'undisturbed');
    await carries(await dial(scope, gateway, 'connect', destination.authority));
  }),
);

test(
  'an operator explains a dial, tries it, watches it, keeps an agent out and ends what hangs',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const plane = await split(scope, { gateways: 1, hubs: 1, agents: 1 });
    const [gateway] = plane.gateways as [Front];
    const [hub] = plane.hubs as [Back];
    const [atGateway, atHub] = [adminOf(scope, gateway.program), adminOf(scope, hub.program)];
    const { authority } = await echo(scope);
    const agent = { agentId: 'agent-0' };

    // On a busy machine, a link or session may be lost for silence, and be there twice for a moment.
    await eventually(async () => {
      const { members, hubs } = await atGateway.listMembers({});
      assert.deepEqual(members.map(({ roles, self }) => [roles, self]).sort(), [
        [[ROLE_GATEWAY], true],
        [[ROLE_HUB], false],
      ]);
      assert.deepEqual(
        hubs.map(({ hubId, link, sessions }) => [hubId, link, sessions]),
        [[hubIdOf(hub.program), adminApi.Hub_Link.LINK_UP, 1]],
      );
    });

    await eventually(async () => {
      const { agentId, hubId } = await atGateway.explain({ destination: authority });
      assert.deepEqual([agentId, hubId], ['agent-0', hubIdOf(hub.program)]);
    });
    const failed = failedDial(scope, gateway.program);
    const tried = await atGateway.dial({ destination: authority });
    // The gateway may have waited for a session, or have begun another attempt before the first one was answered.
    const phases = tried.phases.map(({ name, depth }) => `${depth} ${name}`);
    assert.deepEqual(
      phases.filter((phase, index) => phase !== '1 park' && (phase !== '1 attempt' || index === phases.indexOf(phase))),
      ['0 gateway', '1 attempt', '2 hub', '3 agent', '4 connect'],
    );
    const refused = await atGateway.dial({ destination: '127.0.0.1:1' });
    assert.equal(refused.dial?.error?.code, 'connection_refused');
    const { dialId: failedId, via, agentId } = await failed;
    assert.deepEqual([failedId, via, agentId], [refused.dial?.dialId, 'admin', 'agent-0']);

    const atAgent = adminOf(scope, plane.agents[0] as Program);
    await eventually(async () => {
      const { servers, serversWanted } = await atAgent.listMembers({});
      assert.deepEqual([servers.map(({ serverId }) => serverId), serversWanted], [[hubIdOf(hub.program)], 1]);
      const { agentId: name, dialRates, ready } = await atAgent.getStatus({});
      // What an operator tries counts nowhere.
      assert.deepEqual([name, dialRates[0]?.dials, dialRates[0]?.failures, ready], ['agent-0', 0, 0, true]);
    });
    await assert.rejects(atAgent.explain({ destination: authority }), /UNIMPLEMENTED: .*ask a gateway of the plane/);
    const { flags } = await atAgent.getConfig({});
    assert.equal(flags.find((flag) => flag.name === 'agent-id')?.value, 'agent-0');

    assert.equal((await atHub.setLogLevel({ level: '5', durationMs: 60_000 })).revertsTo, 'info');
    await atHub.quarantine({ agent, reason: 'loses packets' });
    await eventually(async () => {
      const { sessionId, steps } = await atGateway.explain({ destination: authority });
      assert.deepEqual([sessionId, steps[0]?.candidates[0]?.quarantineReason], ['', 'loses packets']);
    });
    assert.match(
      (await atGateway.dial({ destination: authority })).dial?.error?.text ?? '',
      /agent-0 is in quarantine/,
    );
    await atGateway.quarantine({ agent, lift: true });
    await eventually(async () => assert.ok((await atGateway.explain({ destination: authority })).sessionId));

    const [first, second] = [
      await dial(scope, gateway, 'mtls', authority),
      await dial(scope, gateway, 'grpc', authority),
    ];
    await Promise.all([carries(first), carries(second)]);
    const cut = (await tunnelsOf(scope, gateway.program)).find(({ caller }) => caller.includes('CN='));
    const dialId = cut?.dialId ?? '';
    assert.equal((await atHub.kick({ target: { $case: 'dialId', value: dialId } })).tunnels, 1);
    await closed(first);
    await carries(second, 'undisturbed');
    const { sessions } = await atHub.listSessions({});
    const kicked = await atHub.kick({ target: { $case: 'agent', value: agent }, reason: 'hangs' });
    assert.deepEqual([kicked.sessionIds, kicked.tunnels], [sessions.map(({ sessionId }) => sessionId), 1]);
    await closed(second);
    await eventually(async () => carries(await dial(scope, gateway, 'connect', authority), 'through a new session'));
    await eventually(async () => {
      const lines = (await atHub.recentLogs({})).lines.map((line) => JSON.parse(line));
      assert.ok(lines.some(({ reason }) => String(reason).endsWith('ended by an operator: hangs')));
      assert.ok(lines.some(({ level, msg }) => level === 'debug' && msg === 'dial established'));
    });
  }),
);

/** Returns a failed dial from a program's watch, which also shows recent ones. */
async function failedDial(scope: Scope, program: Program): Promise<adminApi.DialRecord> {
  const events = adminOf(scope, program).watchDials({ onlyFailed: true }, { signal: scope.signal });
  const next = events[Symbol.asyncIterator]().next();
  const { value } = await within(next, { what: 'a failed dial on the watch' });
  return value.dial;
}
