import assert from 'node:assert/strict';
import { rename, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { redisMissing } from '@isthmus/registry/testing';
import type { TrailRecord } from '@isthmus/telemetry';
import {
  echo,
  nextChunk,
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

/** Of every token here, in milliseconds. A busy machine may stall for half of it before a rotated token reaches the hub. */
const LIFE = 20_000;

/** How often a token is rotated, in milliseconds. The kubelet does so when a fifth of its life is left. */
const ROTATE_EVERY = LIFE / 3;

/** By then, a hub has seen that a token has expired, in milliseconds. */
const SEEN_WITHIN = 5000;

const OWN = 'system:serviceaccount:kube-system:konnectivity-agent';
const OTHER = 'system:serviceaccount:default:somebody';

/** An agent with a token, and a tunnel through it. */
interface Tokened {
  readonly tunnel: Socket;
  /** When the token ends with which the agent came. */
  readonly firstEnds: number;
  /** Puts a fresh token into the file. @returns when it ends */
  rotate(subject?: string): Promise<number>;
}

async function tokened(scope: Scope, plane: TenantsPlane, name: string, destination: string): Promise<Tokened> {
  const issuer = new TokenIssuer(`https://${name}.example`);
  const dir = await tempDir(scope);
  const [keys, path] = [join(dir, 'jwks.json'), join(dir, 'token')];
  await writeFile(keys, issuer.jwks);
  const rotate = async (subject = OWN) => {
    const ends = Math.floor((Date.now() + LIFE) / 1000);
    await writeFile(`${path}.new`, issuer.token(subject, { exp: ends }));
    await rename(`${path}.new`, path);
    return ends * 1000;
  };
  const tokens = { issuer: issuer.issuer, audience: issuer.audience, keys };
  const trust = await plane.directory.add(name, { agents: [{ tokens }] });
  const inForce = ({ hub, gateway }: TenantsPlane['audit']) =>
    [hub, gateway].every((log) =>
      readRecords(log).some((each) => 'changed' in each && `${each.changed}`.includes(name)),
    );
  await until(() => inForce(plane.audit), { what: `${name} to be in force` });
  let firstEnds = await rotate();
  const flags = {
    'agent-id': name,
    'agent-cert': undefined,
    'agent-key': undefined,
    'service-account-token-path': path,
  };
  await startAgent(scope, plane.trust, plane.hub.agentPort, flags);
  const via = await callerOf(plane, trust);
  const dial = async () => {
    // A slow machine may need several tokens until the agent is there.
    if (Date.now() > firstEnds - ROTATE_EVERY) firstEnds = await rotate();
    return tunnelThrough(scope, { via, destination }).catch(() => undefined);
  };
  return { tunnel: await until(dial, { what: `a tunnel of ${name}` }), firstEnds, rotate };
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
      const { tunnel, firstEnds, rotate } = await tokened(scope, plane, 'rotated', authority);
      const ends = [firstEnds];
      const twiceOver = () => Date.now() > (ends[2] ?? Number.POSITIVE_INFINITY) + SEEN_WITHIN;
      while (!twiceOver()) {
        ends.push(await rotate());
        const next = Date.now() + ROTATE_EVERY;
        await until(() => twiceOver() || Date.now() > next, { what: 'the next rotation' });
      }
      tunnel.write('still there');
      assert.equal((await nextChunk(tunnel, 'an echo')).toString(), 'still there');
      const { sessions, refusals } = recordsOf(plane, 'rotated');
      assert.deepEqual([sessions.map(({ state }) => state), refusals], [['opened'], []]);
    }),
  );

  it(
    'not rotated: the tunnel ends, with the reason',
    scoped(async (scope) => {
      const { plane, authority } = await shared();
      const { tunnel } = await tokened(scope, plane, 'left', authority);
      await closed(tunnel);
      const ended = await until(() => recordsOf(plane, 'left').sessions.find(({ state }) => state === 'closed'));
      assert.match(ended.text ?? '', /its credential expired at/);
    }),
  );

  it(
    'rotated to the token of another principal: it is refused, and the tunnel ends',
    scoped(async (scope) => {
      const { plane, authority } = await shared();
      const { tunnel, rotate } = await tokened(scope, plane, 'another', authority);
      await rotate(OTHER);
      const refusal = await until(() => recordsOf(plane, 'another').refusals[0]);
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
