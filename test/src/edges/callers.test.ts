import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectHttp2, constants } from 'node:http2';
import test from 'node:test';
import { connect as connectTls } from 'node:tls';
import {
  allInOne,
  connectThrough,
  echo,
  type Front,
  packetsThrough,
  type Scope,
  scoped,
  until,
} from '../harness/index.ts';
import { abandoned, dial, type Edge, echoes, edgesOf, tunnelsAre } from './rig.ts';

test(
  'one server serves callers on all edges at once, for IPv4, IPv6 and names',
  scoped(async (scope) => {
    const { server } = await allInOne(scope);
    const four = await echo(scope);
    const six = await echo(scope, { host: '::1' });
    const destinations = [four.authority, six.authority, `localhost:${four.port}`];
    const dials = edgesOf(server).flatMap((edge) =>
      destinations.map(async (destination) => ({
        name: `${edge.name} to ${destination}`,
        tunnel: await dial(scope, edge, destination),
      })),
    );
    const tunnels = await Promise.all(dials);
    await tunnelsAre(server.program, 12);
    // The agent may see its connections before the listener does.
    await until(() => four.open === 8 && six.open === 4, {
      what: () => `8 and 4 connections, not ${four.open} and ${six.open}`,
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
      for (const edge of edgesOf(server)) {
        if (edge.protocol === mode) assert.ok(await echoes(await dial(scope, edge, target.authority), 'x'), edge.name);
        else await assert.rejects(answerOf(scope, edge, target.authority), edge.name);
      }
      assert.equal(target.accepted, 2);
    }),
  );
}

test(
  'a CONNECT over HTTP/2 is told to use HTTP/1.1, by a port that serves gRPC too; one that does not offers no h2',
  scoped(async (scope) => {
    const [both, connect] = await Promise.all([
      allInOne(scope),
      allInOne(scope, { serverFlags: { mode: 'http-connect' } }),
    ]);
    const shaken = ({ mtls: { port, ca, identity } }: Front, ...ALPNProtocols: string[]) => {
      const own = { ca: readFileSync(ca), cert: readFileSync(identity.cert), key: readFileSync(identity.key) };
      const socket = connectTls({ port, host: '127.0.0.1', servername: 'localhost', ALPNProtocols, ...own });
      scope.defer(() => socket.destroy());
      return socket;
    };
    const session = connectHttp2('https://x', { createConnection: () => shaken(both.server, 'h2') });
    scope.defer(() => session.destroy());
    const stream = session.request({ ':method': 'CONNECT', ':authority': '127.0.0.1:1' }, { endStream: false });
    await assert.rejects(once(stream, 'response'));
    assert.equal(stream.rstCode, constants.NGHTTP2_HTTP_1_1_REQUIRED);
    assert.equal((await both.server.program.metric('isthmus_refused_total')).get('{where="callers"}'), 1);
    await assert.rejects(once(shaken(connect.server, 'h2'), 'secureConnect'), {
      code: 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL',
    });
    for (const { server } of [both, connect]) {
      const socket = shaken(server, 'h2', 'http/1.1');
      await once(socket, 'secureConnect');
      assert.equal(socket.alpnProtocol, 'http/1.1');
    }
  }),
);

/** Rejects when the connection ends without an answer, or with a refusal. */
async function answerOf(scope: Scope, { protocol, via }: Edge, destination: string): Promise<unknown> {
  if (protocol === 'http-connect') return connectThrough(scope, { via, destination });
  const packets = packetsThrough(scope, via);
  packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random: 1n });
  return packets.expect('DIAL_RSP');
}
