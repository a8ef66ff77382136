import assert from 'node:assert/strict';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { redisMissing } from '@isthmus/directory/testing';
import type { TrailRecord } from '@isthmus/telemetry';
import {
  DEADLINE_MS,
  echo,
  nextChunk,
  type Program,
  type Scope,
  scoped,
  sharedByFile,
  startAgent,
  tempDir,
  tunnelThrough,
  until,
} from '../harness/index.ts';
import { readRecords } from '../plane/audit-records.ts';
import { closed } from '../plane/dials.ts';
import { callerOf, type TenantsPlane, tenantsPlane } from './rig.ts';
import { TokenIssuer } from './token-issuer.ts';

/** Of a token here, in milliseconds, unless a test says otherwise. A busy machine may stall for half of it before a rotated token reaches the hub. */
const LIFE = 20_000;

const HOUR = 3_600_000;

/** By then, a hub has seen that a token has expired, in milliseconds. */
const SEEN_WITHIN = 5000;

const OWN = 'system:serviceaccount:kube-system:konnectivity-agent';
const OTHER = 'system:serviceaccount:default:somebody';

/**
 * A file with a token, which is rotated after a third of its life and never sooner: a hub refuses tokens that come too fast. The kubelet rotates one
 * when a fifth of its life is left.
 */
class Rotation {
  /** Whose the next tokens are. */
  subject = OWN;
  /** When each token ends, in milliseconds since the epoch. */
  readonly ends: number[] = [];
  readonly #issuer: TokenIssuer;
  readonly path: string;
  readonly #timer: NodeJS.Timeout;

  constructor(issuer: TokenIssuer, path: string, lifeMs: number) {
    this.#issuer = issuer;
    this.path = path;
    this.#rotate(lifeMs);
    this.#timer = setInterval(() => this.#rotate(lifeMs), lifeMs / 3);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #rotate(lifeMs: number): void {
    const ends = Math.floor((Date.now() + lifeMs) / 1000);
    writeFileSync(`${this.path}.new`, this.#issuer.token(this.subject, { exp: ends }));
    renameSync(`${this.path}.new`, this.path);
    this.ends.push(ends * 1000);
  }
}

/** An agent with a token, and a tunnel through it. */
interface Tokened {
  readonly agent: Program;
  readonly tunnel: Socket;
  readonly rotation: Rotation;
}

async function tokened(
  scope: Scope,
  plane: TenantsPlane,
  name: string,
  destination: string,
  lifeMs = LIFE,
): Promise<Tokened> {
  const issuer = new TokenIssuer(`https://${name}.example`);
  const dir = await tempDir(scope);
  const [keys, path] = [join(dir, 'jwks.json'), join(dir, 'token')];
  writeFileSync(keys, issuer.jwks);
  const tokens = { issuer: issuer.issuer, audience: issuer.audience, keys };
  const trust = await plane.directory.add(name, { agents: [{ tokens }] });
  const inForce = ({ hub, gateway }: TenantsPlane['audit']) =>
    [hub, gateway].every((log) =>
      readRecords(log).some((each) => 'changed' in each && `${each.changed}`.includes(name)),
    );
  await until(() => inForce(plane.audit), { what: `${name} to be in force` });
  const rotation = new Rotation(issuer, path, lifeMs);
  scope.defer(() => rotation.stop());
  const flags = {
    'agent-id': name,
    'agent-cert': undefined,
    'agent-key': undefined,
    'service-account-token-path': path,
    // A machine that stalls for seconds ends no session: only a token does.
    'ping-interval': '1m',
  };
  const agent = await startAgent(scope, plane.trust, plane.hub.agentPort, flags);
  const via = await callerOf(plane, trust);
  const dial = () => tunnelThrough(scope, { via, destination }).catch(() => undefined);
  return { tunnel: await until(dial, { what: () => `a tunnel of ${name}${agent.tail}` }), rotation, agent };
}

/** The records of a tenant's sessions and refusals at the hub. */
function recordsOf({ audit }: TenantsPlane, tenant: string) {
  const all = readRecords(audit.hub) as TrailRecord[];
  return {
    sessions: all.flatMap((each) =>
      'record' in each && each.record === 'session' && each.tenant === tenant ? each : [],
    ),
    refusals: all.flatMap((each) =>
      'record' in each && each.record === 'refusal' && each.tenant === tenant ? each : [],
    ),
  };
}

const shared = sharedByFile(async (scope) => ({
  plane: await tenantsPlane(scope),
  authority: (await echo(scope)).authority,
}));

// Side by side: each waits for tokens of its own tenant to end.
describe("a session and its agent's token", { skip: redisMissing(), concurrency: true }, () => {
  it(
    'rotated twice, by the same principal: the tunnel lives on',
    scoped(async (scope) => {
      const { plane, authority } = await shared();
      const { tunnel, rotation } = await tokened(scope, plane, 'rotated', authority);
      const [first, since] = [rotation.ends.length - 1, Date.now()];
      const twiceOver = () => Date.now() > (rotation.ends[first + 2] ?? Number.POSITIVE_INFINITY) + SEEN_WITHIN;
      await until(twiceOver, { deadline: 2 * DEADLINE_MS, what: 'the end of three tokens' });
      tunnel.write('still there');
      assert.equal((await nextChunk(tunnel, 'an echo')).toString(), 'still there');
      const { sessions, refusals } = recordsOf(plane, 'rotated');
      const later = [...sessions, ...refusals].filter(({ time }) => Date.parse(time) > since);
      assert.deepEqual(later, [], 'its session is the one that it began with');
    }),
  );

  it(
    'in a file that turns bad, and is good again: the agent names it, shows what it had, and its session goes on',
    scoped(async (scope) => {
      const { plane, authority } = await shared();
      const { agent, tunnel, rotation } = await tokened(scope, plane, 'spoiled', authority, HOUR);
      const good = readFileSync(rotation.path);
      const faults = async (count: number) => {
        const of = async () => (await agent.metric('isthmus_certificate_faults')).get('{where="uplink"}') === count;
        await until(of, { what: () => `${count} faults of files${agent.tail}` });
      };
      const since = Date.now();
      // A hub ends a link that sends it so much at once.
      for (const bad of ['', 'x'.repeat(400_000)]) {
        writeFileSync(rotation.path, bad);
        await faults(1);
        writeFileSync(rotation.path, good);
        await faults(0);
      }
      tunnel.write('still there');
      assert.equal((await nextChunk(tunnel, 'an echo')).toString(), 'still there');
      const { sessions, refusals } = recordsOf(plane, 'spoiled');
      const later = [...sessions, ...refusals].filter(({ time }) => Date.parse(time) > since);
      assert.deepEqual(later, [], 'nothing bad was sent');
    }),
  );

  it(
    'not rotated: the tunnel ends, with the reason',
    scoped(async (scope) => {
      const { plane, authority } = await shared();
      const { tunnel, rotation } = await tokened(scope, plane, 'left', authority);
      rotation.stop();
      await closed(tunnel);
      // On a slow machine, the agent may have given up an earlier session itself.
      const ends = () =>
        recordsOf(plane, 'left').sessions.flatMap(({ state, text }) => (state === 'closed' ? text : []));
      const expired = () => ends().some((text) => text?.includes('its credential expired at'));
      await until(expired, { what: () => `the end of its credential, not ${ends()}` });
    }),
  );

  it(
    'rotated to the token of another principal: it is refused, and the tunnel ends',
    scoped(async (scope) => {
      const { plane, authority } = await shared();
      const { tunnel, rotation } = await tokened(scope, plane, 'another', authority);
      rotation.subject = OTHER;
      const refusal = await until(() => recordsOf(plane, 'another').refusals[0]);
      // With tokens of the other principal that are good, the agent would come again, and its tunnel go on.
      rotation.stop();
      assert.equal(refusal.principal, `another/agent/${OWN}`);
      assert.equal(refusal.rule, 'another.yaml: agents[0].tokens');
      assert.match(
        refusal.text,
        /^the fresh token of agent another is of another\/agent\/system:serviceaccount:default:somebody/,
      );
      await closed(tunnel);
    }),
  );
});
