import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  agentMember,
  Destination,
  newTrust,
  type Scope,
  scoped,
  serverMember,
  type TlsVia,
  tunnelThrough,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { namespace, networksMissing, type Wire } from '../rig/network.ts';
import { carries } from './dials.ts';

const skip = networksMissing() || unlessSlow();

/** How long a NAT remembers a connection that says nothing, and how long one says nothing here, in milliseconds. */
const [REMEMBERED, IDLE] = [20_000, 45_000];

/** Within this time a peer that is gone is found out, in milliseconds: 150 s after its last word, and what a busy machine adds. */
const FOUND_OUT = 180_000;

/** A server and an agent behind wires to their callers and destinations, which are here. */
async function plane<T extends string>(scope: Scope, destinations: readonly T[]) {
  const { command, wire } = await namespace(scope, ['callers', ...destinations]);
  const callers = wire('callers');
  const place = { command, host: callers.inside };
  const trust = await newTrust(scope);
  const health = { 'health-bind-address': callers.inside, 'admin-bind-address': callers.inside };
  const { member, agentPort, ways } = await serverMember(scope, trust, 'server', {
    flags: { 'server-bind-address': callers.inside, ...health },
    place,
  });
  const flags = { 'health-server-host': callers.inside };
  const agent = await agentMember(scope, trust, 'agent', agentPort, { flags, place });
  await Promise.all([member.program, agent.program].map((program) => program.waitReady()));
  const at = async (name: T) =>
    scope.use(await new Destination(wire(name).outside, (socket) => socket.pipe(socket)).listen());
  const mtls: TlsVia = { ...ways.mtls, host: callers.inside };
  return { ways, mtls, wire, at };
}

/** Cuts a wire for good once nothing has passed for as long as a NAT remembers. Ends with the scope. */
function forgets(scope: Scope, wire: Wire): void {
  let seen = wire.packets();
  let since = performance.now();
  const timer = setInterval(() => {
    const now = wire.packets();
    if (now !== seen) [seen, since] = [now, performance.now()];
    else if (performance.now() - since > REMEMBERED) void wire.cut();
  }, 1000);
  scope.defer(() => clearInterval(timer));
}

/** Waits until nothing is on its way: the kernel would send it again for a quarter of an hour before it gives up, and ask nothing meanwhile. */
async function quiet(wire: Wire): Promise<void> {
  let seen = 0;
  const same = () => {
    const before = seen;
    seen = wire.packets();
    return seen === before;
  };
  await until(same, { every: 500, what: 'nothing to pass' });
}

test(
  'a tunnel that says nothing goes on behind NATs that forget what says nothing, before its caller and its destination',
  { skip },
  scoped(async (scope) => {
    const { mtls, wire, at } = await plane(scope, ['destination']);
    const destination = await at('destination');
    const tunnel = await tunnelThrough(scope, { via: mtls, destination: destination.authority });
    await carries(tunnel, 'before');
    for (const name of ['callers', 'destination'] as const) forgets(scope, wire(name));
    await sleep(IDLE);
    await carries(tunnel, 'after');
  }),
);

test(
  'tunnels end whose destination, or whose caller, has lost its power',
  { skip, timeout: 400_000 },
  scoped(async (scope) => {
    const { ways, mtls, wire, at } = await plane(scope, ['lost', 'kept']);
    const [lost, kept] = [await at('lost'), await at('kept')];
    const toLost = await tunnelThrough(scope, { via: ways.connect, destination: lost.authority });
    const fromLost = await tunnelThrough(scope, { via: mtls, destination: kept.authority });
    for (const tunnel of [toLost, fromLost]) await carries(tunnel, 'before');
    let over = false;
    for (const event of ['end', 'close', 'error']) toLost.on(event, () => (over = true));
    toLost.resume();
    await Promise.all([quiet(wire('callers')), quiet(wire('lost'))]);
    await Promise.all([wire('callers').cut(), wire('lost').cut()]);
    await until(() => over, { deadline: FOUND_OUT, what: 'the caller to hear that its destination is gone' });
    await until(() => kept.open === 0, {
      deadline: FOUND_OUT,
      what: 'the destination to hear that its caller is gone',
    });
  }),
);
