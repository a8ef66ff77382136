import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { echo, grpcThrough, type Scope, scoped, tunnelThrough, within } from '../harness/index.ts';
import { COMMAND_LINES, type CommandLine } from './command-lines.ts';
import { commandLinesOf } from './objects.ts';
import { type Running, run } from './run.ts';

const REVIEW = 'POST /apis/authentication.k8s.io/v1/tokenreviews';

function linesOf(recipe: string): CommandLine[] {
  const others = COMMAND_LINES.filter((line) => line.recipe === recipe);
  const lines = others.length > 0 ? others : commandLinesOf(recipe);
  return lines.toSorted((a, b) => b.program.localeCompare(a.program));
}

/** Dials as the recipe's API server does, and sends a line there and back. */
async function carries(scope: Scope, { via, server }: Running): Promise<void> {
  const destination = (await echo(scope)).authority;
  const tunnel =
    'uds' in via ? await grpcThrough(scope, via, destination) : await tunnelThrough(scope, { via, destination });
  const first = once(tunnel, 'data');
  tunnel.resume().write('there and back\n');
  const [answer] = await within(first, { what: `an echo through ${server.name}` });
  assert.equal(String(answer), 'there and back\n', server.tail);
}

for (const recipe of ['kubernetes-io', 'kamaji', 'k0s'] as const) {
  test(
    `${recipe}: server and agents with its arguments carry a dial by gRPC, and the API server reviews the agents' token`,
    scoped(async (scope) => {
      const running = await run(scope, linesOf(recipe));
      await carries(scope, running);
      assert.ok(running.calls.includes(REVIEW), running.calls.join('\n'));
    }),
  );
}

test(
  'hypershift: server and agents with its arguments carry a dial by CONNECT over mutual TLS',
  scoped(async (scope) => {
    const running = await run(scope, linesOf('hypershift'));
    assert.equal(running.agents.length, 2);
    await carries(scope, running);
  }),
);
