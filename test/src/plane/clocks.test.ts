import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  agentMember,
  type Env,
  gatewayMember,
  hubMember,
  newTrust,
  peerFlags,
  Scope,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { asked } from './operator.ts';

const LIBRARY = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1';
const skip = unlessSlow() || redisMissing() || (existsSync(LIBRARY) ? false : 'libfaketime is not installed');

interface Result {
  readonly check: string;
  readonly about: string;
  readonly outcome: string;
  readonly detail: string;
  readonly todo?: string;
}

/** How long certificates are valid: to a clock that is an hour ahead, they have expired. */
const VALID_MS = 30 * 60_000;
const LENGTHS: Readonly<Record<number, RegExp>> = {
  600: /(10 min 0|9 min 59) s/,
  3600: /1 h 0 min|59 min 59 s|1 h 0 s/,
};

/** A wall clock of its own, so many seconds ahead. */
function clock(seconds: number): Env {
  if (seconds === 0) return {};
  const ahead = `${seconds < 0 ? '' : '+'}${seconds}`;
  return { LD_PRELOAD: LIBRARY, FAKETIME: ahead, FAKETIME_DONT_FAKE_MONOTONIC: '1', FAKETIME_NO_CACHE: '1' };
}

async function plane(scope: Scope) {
  const trust = await newTrust(scope, VALID_MS);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const flags = { 'redis-url': redis.url, plane: 'test' };
  const hub = (id: string, seconds = 0) => {
    return hubMember(scope, trust, id, { flags: { ...flags, 'server-id': id }, env: clock(seconds) });
  };
  const first = await hub('hub-1');
  const start = {
    hub: async (id: string, seconds?: number) => (await hub(id, seconds)).member,
    async gateway(id: string, seconds = 0) {
      const own = { ...flags, ...(await peerFlags(trust)), 'server-id': id };
      return (await gatewayMember(scope, trust, id, { flags: own, env: clock(seconds) })).member;
    },
    agent: (id: string, seconds = 0) =>
      agentMember(scope, trust, id, first.agentPort, { flags: { 'agent-id': id }, env: clock(seconds) }),
  };
  const [gateway, agent] = [await start.gateway('gateway-1'), await start.agent('agent-1')];
  await Promise.all([first.member, gateway, agent].map(({ program }) => program.waitReady()));
  return { start, gateway };
}

test('isthmus check names whose clock is wrong, and how far it is off', { skip, timeout: 600_000 }, async (context) => {
  await using scope = new Scope();
  const { start, gateway } = await plane(scope);
  for (const seconds of [600, -600, 3600, -3600]) {
    for (const [kind, begin] of Object.entries(start)) {
      const id = `${kind}${seconds}`;
      const odd = await begin(id, seconds);
      const about = kind === 'agent' ? `agent ${id}` : id;
      let results: readonly Result[] = [];
      const named = async () => {
        ({ results } = await asked<{ results: Result[] }>(gateway.program, 'check', '--no-dials', '--timeout', '5s'));
        const found = results.find((each) => each.check === 'clocks' && each.about === about);
        if (found) return found.detail;
        // It takes no hub's certificate for valid.
        const refused = results.find(({ check, todo = '' }) => check === 'refusals' && /its clock be right/.test(todo));
        return kind === 'agent' && seconds * 1000 > VALID_MS ? refused?.detail : undefined;
      };
      const what = () => `${about} in ${JSON.stringify(results.filter(({ outcome }) => outcome !== 'pass'))}`;
      const detail = await until(named, { deadline: 60_000, every: 1000, what });
      context.diagnostic(`${about}: ${detail}`);
      if (!detail.includes('refused')) {
        assert.match(detail, LENGTHS[Math.abs(seconds)] as RegExp);
        assert.match(detail, seconds < 0 ? / behind that of / : / ahead of that of /);
      }
      const silent = results.find(
        ({ check, about: whose, outcome }) => check === 'members' && whose === id && outcome === 'fail',
      );
      if (silent) assert.match(silent.todo ?? '', /the clock of .* is .* most others: set it first/);
      await odd.program.kill();
    }
  }
});
