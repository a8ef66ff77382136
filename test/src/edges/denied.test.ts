import { execFileSync, spawnSync } from 'node:child_process';
import test from 'node:test';
import {
  agentPortFlags,
  commandOf,
  connectThrough,
  freePort,
  newTrust,
  type Scope,
  scoped,
  startCommand,
  until,
  uplinkFlags,
} from '../harness/index.ts';
import { assertRefused, refusals } from './rig.ts';

/** From the range for documentation (RFC 5737), which no network uses. */
const PROHIBITED = '192.0.2.1';
const UNREACHABLE = '192.0.2.2';
const NO_ROUTE = '192.0.2.3';

const namespace = `isthmus-test-${process.pid}`;

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: 'pipe' });
}

/** Returns why this machine cannot make a network namespace, or false. */
function namespacesMissing(): string | false {
  const made = spawnSync('ip', ['netns', 'add', namespace], { encoding: 'utf8' });
  if (made.error) return 'ip is not installed (iproute2)';
  if (made.status !== 0) return `no network namespace may be made, that takes root: ${made.stderr.trim()}`;
  ip('netns', 'delete', namespace);
  return false;
}

test(
  "destinations that the agent's routes prohibit are denied, and those without a route unreachable, on both protocols",
  { skip: namespacesMissing() },
  scoped(async (scope) => {
    ip('netns', 'add', namespace);
    scope.defer(() => ip('netns', 'delete', namespace));
    ip('-n', namespace, 'link', 'set', 'lo', 'up');
    ip('-n', namespace, 'route', 'add', 'prohibit', PROHIBITED);
    ip('-n', namespace, 'route', 'add', 'unreachable', UNREACHABLE);
    const front = await planeInNamespace(scope);

    const prohibited = await refusals(scope, front, `${PROHIBITED}:443`);
    assertRefused(
      prohibited,
      403,
      'destination_ip_prohibited',
      /dial tcp 192\.0\.2\.1:443: connect: permission denied/,
    );
    const unreachable = await refusals(scope, front, `${UNREACHABLE}:443`);
    assertRefused(
      unreachable,
      502,
      'destination_ip_unroutable',
      /dial tcp 192\.0\.2\.2:443: connect: no route to host/,
    );
    const noRoute = await refusals(scope, front, `${NO_ROUTE}:443`);
    assertRefused(
      noRoute,
      502,
      'destination_ip_unroutable',
      /dial tcp 192\.0\.2\.3:443: connect: network is unreachable/,
    );
  }),
);

/** Starts a server and an agent in a network namespace of their own. Callers reach them through the unix socket. */
async function planeInNamespace(scope: Scope) {
  const trust = await newTrust(scope);
  const agentPort = await freePort();
  const uds = `${trust.dir}/callers.sock`;
  const inside = ['ip', 'netns', 'exec', namespace] as const;
  const server = { 'uds-name': uds, 'server-port': 0, ...(await agentPortFlags(trust, agentPort)) };
  startCommand(scope, [...inside, ...commandOf('proxy-server')], { flags: server });
  const { healthPort, ...agent } = await uplinkFlags(trust, agentPort);
  startCommand(scope, [...inside, ...commandOf('proxy-agent')], { flags: agent, healthPort });
  const front = { grpc: { uds }, connect: { uds } };
  await until(
    async () => (await connectThrough(scope, { via: { uds }, destination: `127.0.0.1:${agentPort}` })).status === 200,
    {
      what: 'a dial to the agent port through the plane itself',
    },
  );
  return front;
}
