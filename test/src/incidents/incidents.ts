import { Authority, blackHole, echo, until } from '../harness/index.ts';
import { dial } from '../plane/dials.ts';
import { TenantsDirectory } from '../tenants/tenants-directory.ts';
import type { Incident } from './incident.ts';
import { keepDialling, startAgent, startPlane, VALID_MS } from './plane.ts';

/** Each agent serves one node. */
const nodeOf = (index: number) => `127.0.0.${101 + index}`;
const byNode = {
  gatewayFlags: { 'proxy-strategies': 'destHost' },
  agentFlags: (index: number) => ({ 'agent-identifiers': `ipv4=${nodeOf(index)}` }),
};

/** The agent that is restarted with a wrong CA, and one beside it. */
const [DISTRUSTS, BESIDE] = [2, 1];

const wrongAuthority: Incident = {
  name: 'wrong CA at one agent',
  fewest: 3,
  answer:
    'agent-2 was restarted with a --ca-cert that does not hold the CA of the hubs. Give it the right one, and restart it.',
  async stage(scope, agents) {
    const plane = await startPlane(scope, { ...byNode, agents });
    const nodes = await Promise.all([DISTRUSTS, BESIDE].map((index) => echo(scope, { host: nodeOf(index) })));
    const [door] = plane.doors;
    for (const { authority } of nodes) if (door) keepDialling(scope, door, authority);
    const foreign = await Authority.create(plane.trust.dir, 'foreign', VALID_MS);
    const before = plane.agents[DISTRUSTS];
    await before?.kill();
    const agent = await startAgent(scope, plane, DISTRUSTS, {
      ...byNode.agentFlags(DISTRUSTS),
      'ca-cert': foreign.cert,
    });
    await agent.program.waitForLog(({ msg }) => msg === 'server connection failed', { what: 'its refusal' });
    return {
      symptom: `kubectl logs and exec fail for the pods of one node, ${nodes[0]?.authority}. All other nodes are fine.`,
      destination: nodes[0]?.authority,
      members: plane.members.map((member) => (member === before ? agent : member)),
    };
  },
};

const hungHub: Incident = {
  name: 'a hub that hangs',
  fewest: 3,
  answer: 'hub-1 hangs (it was sent SIGSTOP). Restart it; dials use the other hubs meanwhile.',
  async stage(scope, agents) {
    const plane = await startPlane(scope, { hubs: 3, agents });
    const { authority } = await echo(scope);
    for (const door of plane.doors) keepDialling(scope, door, authority);
    const hub = plane.hubs[1];
    hub?.program.signal('SIGSTOP');
    scope.defer(() => hub?.program.signal('SIGCONT'));
    const links = async () => Promise.all(plane.gateways.map((gateway) => gateway.value('isthmus_hub_links')));
    await until(async () => (await links()).every((count) => count === 2), { what: 'the gateways to lose the hub' });
    return {
      symptom:
        'Some watches paused for seconds a while ago. Everything seems to work again. What was it, and is it over?',
      members: plane.members,
    };
  },
};

const silentDestination: Incident = {
  name: 'a destination that drops SYNs',
  fewest: 2,
  answer:
    'The destination drops every SYN, as a firewall between agents and node does. The plane is well: look at the node, and at what lies before it.',
  async stage(scope, agents) {
    const plane = await startPlane(scope, { agents, gatewayFlags: { 'backend-dial-timeout': '4s' } });
    const { authority } = await echo(scope);
    const silent = await blackHole(scope);
    for (const door of plane.doors) {
      for (const destination of [authority, silent, silent]) keepDialling(scope, door, destination);
    }
    return {
      symptom: 'kubectl exec hangs for some pods, and ends with an error after seconds.',
      destination: silent,
      members: plane.members,
    };
  },
};

const readOnlyRedis: Incident = {
  name: 'Redis read-only',
  fewest: 2,
  answer:
    'Redis is a replica, and refuses writes: a failover went wrong. Make it the primary again (REPLICAOF NO ONE), or lead --redis-url to the primary.',
  async stage(scope, agents) {
    const plane = await startPlane(scope, { ...byNode, agents });
    const { authority } = await echo(scope, { host: nodeOf(10) });
    await plane.redis.command('REPLICAOF 127.0.0.1 1');
    const agent = await startAgent(scope, plane, 10, byNode.agentFlags(10));
    await agent.program.waitReady();
    const [door] = plane.doors;
    if (door) keepDialling(scope, door, authority);
    return {
      symptom: `A new node, ${authority}, joined some minutes ago. Its agent says that it is connected, but kubectl logs fails there.`,
      destination: authority,
      members: [...plane.members, agent],
    };
  },
};

/** The tunnels that the tenant may have at each gateway. */
const MOST_TUNNELS = 20;

const fullTenant: Incident = {
  name: 'a tenant at its limit',
  fewest: 2,
  answer: `Tenant acme has as many tunnels as limits.tunnels in its file allows (${MOST_TUNNELS}): a client leaks them. Find it by isthmus tunnels --sort age, end them, or raise the limit.`,
  async stage(scope, agents) {
    const directory = await TenantsDirectory.create(scope);
    const tenants = await Promise.all(['acme', 'globex'].map((name) => directory.trust(name, VALID_MS)));
    for (const { name, file } of tenants) {
      await directory.write(name === 'acme' ? { ...file, limits: { tunnels: MOST_TUNNELS } } : file);
    }
    const plane = await startPlane(scope, {
      agents,
      planeFlags: { 'tenants-dir': directory.path },
      gatewayFlags: { 'uds-name': undefined },
      async agentFlags(index) {
        const { cert, key } = (await tenants[index % 2]?.agent(`agent-${index}`)) ?? {};
        return { 'agent-cert': cert, 'agent-key': key };
      },
    });
    const { authority } = await echo(scope);
    const waysOf = async (index: number) => {
      const tenant = tenants[index];
      const [door] = plane.doors;
      if (!tenant || !door) throw new Error('no gateway, or no tenant');
      const { serverName, cluster } = tenant;
      const { port } = door.mtls;
      return { ...door, mtls: { port, serverName, ca: cluster.cert, identity: await tenant.caller() } };
    };
    const [acme, globex] = [await waysOf(0), await waysOf(1)];
    const leaked = Array.from({ length: MOST_TUNNELS }, () => dial(scope, acme, 'mtls', authority));
    await Promise.all(leaked);
    for (const ways of [acme, globex]) keepDialling(scope, ways, authority, 'mtls');
    return {
      symptom: "acme's API server gets no connection to its nodes any more. Other clusters are fine.",
      destination: authority,
      tenant: 'acme',
      members: plane.members,
    };
  },
};

export const INCIDENTS: readonly Incident[] = [wrongAuthority, hungHub, silentDestination, readOnlyRedis, fullTenant];
