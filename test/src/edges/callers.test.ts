import assert from 'node:assert/strict';
import test from 'node:test';
import {
  allInOne,
  connectThrough,
  echo,
  packetsThrough,
  type Scope,
  scoped,
  streamThrough,
  until,
} from '../harness/index.ts';
import { abandoned, dial, type Edge, echoes, edgesOf, http2EdgeOf, tunnelsAre } from './rig.ts';

test(
  'one server serves callers on all edges at once, for IPv4, IPv6 and names',
  scoped(async (scope) => {
    const { server } = await allInOne(scope);
    const four = await echo(scope);
    const six = await echo(scope, { host: '::1' });
    const destinations = [four.authority, six.authority, `localhost:${four.port}`];
    const dials = [...edgesOf(server), http2EdgeOf(server)].flatMap((edge) =>
      destinations.map(async (destination) => ({
        name: `${edge.name} to ${destination}`,
        tunnel: await dial(scope, edge, destination),
      })),
    );
    const tunnels = await Promise.all(dials);
    await tunnelsAre(server.program, 15);
    // The agent may see its connections before the listener does.
    await until(() => four.open === 10 && six.open === 5, {
      what: () => `10 and 5 connections, not ${four.open} and ${six.open}`,
    });
    for (const { name, tunnel } of tunnels) assert.ok(await echoes(tunnel, `by ${name}`), name);
    for (const { tunnel } of tunnels) tunnel.end();
    await Promise.all([abandoned(four), abandoned(six), tunnelsAre(server.program, 0)]);
  }),
);

for (const mode of ['grpc', 'http-connect'] as const) {
  test(
    `--mode=${mode} serves only that protocol, over UDS and over mTLS`,
    scoped(async (scope) => {
      const { server } = await allInOne(scope, { serverFlags: { mode } });
      const target = await echo(scope);
      for (const edge of [...edgesOf(server), http2EdgeOf(server)]) {
        if (edge.protocol === mode) assert.ok(await echoes(await dial(scope, edge, target.authority), 'x'), edge.name);
        else await assert.rejects(answerOf(scope, edge, target.authority), edge.name);
      }
      assert.equal(target.accepted, mode === 'grpc' ? 2 : 3);
    }),
  );
}

/** Rejects when the connection ends without an answer, or with a refusal. */
async function answerOf(scope: Scope, { protocol, http2, via }: Edge, destination: string): Promise<unknown> {
  if (http2) {
    const { head } = await streamThrough(scope, { via, destination });
    return assert.equal(head[':status'], 200);
  }
  if (protocol === 'http-connect') return connectThrough(scope, { via, destination });
  const packets = packetsThrough(scope, via);
  packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random: 1n });
  return packets.expect('DIAL_RSP');
}
