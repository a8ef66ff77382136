import assert from 'node:assert/strict';
import test from 'node:test';
import {
  allInOne,
  echo,
  eventually,
  goMissing,
  type Program,
  type Scope,
  scoped,
  startPeerDial,
  summaryOf,
  until,
} from '../harness/index.ts';
import { isthmus } from '../plane/operator.ts';
import { writeEgressConfigs } from './rig.ts';

const HELD = 24;

/** How an API server's own dialer sees the ends of tunnels on each transport: the errors of Read, empty for EOF, and of Close. */
async function endsAt(scope: Scope, act: (server: Program) => Promise<unknown>): Promise<Map<string, string[]>> {
  const { trust, server } = await allInOne(scope);
  const { authority: dest } = await echo(scope);
  const ends = new Map<string, string[]>();
  for (const [transport, config] of await writeEgressConfigs(trust, server)) {
    const holding = await startPeerDial(scope, { via: { config }, dest, do: 'hold', count: HELD, concurrency: HELD });
    await until(() => holding.lines.filter((line) => line === 'held').length === HELD, { what: 'all tunnels' });
    await act(server.program);
    const { results } = await summaryOf(holding);
    ends.set(
      transport,
      results.map(({ error, closeError }) => `${error}; ${closeError}`),
    );
  }
  return ends;
}

test(
  "an API server's own dialer sees a cut as a reset over TLS, and with its text over gRPC",
  { skip: goMissing() },
  scoped(async (scope) => {
    const ends = await endsAt(scope, async (server) => {
      // On a busy machine, the agent may just have lost its session, which resumes its tunnel.
      await eventually(async () => {
        const { status, out, err } = await isthmus(server, 'kick', 'agent', 'agent-0', '--reason', 'it hangs');
        assert.equal(status, 0, out + err);
      });
      await server.waitReady();
    });
    const each = (transport: string, end: RegExp) => {
      const seen = ends.get(transport) ?? [];
      assert.equal(seen.length, HELD);
      for (const text of seen) assert.match(text, end);
      return seen;
    };
    each('HTTP CONNECT over mTLS', /^read tcp .*: connection reset by peer; /);
    // Its Read returns EOF for every end; Close has the text, or, if the call is over by then, as often as not only that it is.
    const texts = each('gRPC over UDS', /^; (.*ended by the plane: .*it hangs|tunnel closed$)/);
    assert.ok(
      texts.some((text) => text.includes('it hangs')),
      `${texts}`,
    );
    // Linux shows a reset of a unix socket only to a peer whose own bytes were not read.
    each('HTTP CONNECT over UDS', /^; $/);
  }),
);
