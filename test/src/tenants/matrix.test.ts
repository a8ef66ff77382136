import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { Authority, type Identity, Scope, tempDir, until } from '../harness/index.ts';
import { type Attempt, claimOf, dialTo, kick, list, type Operated, readMetrics } from './attempts.ts';
import { addCluster, tenantsPlane } from './rig.ts';
import { serialOf, spiffe } from './tenant-trust.ts';

const ACTIONS = ['dial acme', 'dial globex', 'claim', 'kick', 'list', 'read metrics'] as const;
type Action = (typeof ACTIONS)[number];

/** What each may do, and what it gets. Everything else is refused. */
const MAY: Readonly<Record<string, Partial<Record<Action, RegExp>>>> = {
  'a caller of acme': { 'dial acme': /^acme$/ },
  'a caller of globex': { 'dial globex': /^globex$/ },
  'an agent of acme': { claim: /^a session$/ },
  'an operator of acme': { kick: /^1 kicked$/, list: /^acme$/, 'read metrics': /^(acme)?$/ },
  'an operator of globex': { list: /^globex$/, 'read metrics': /^(globex)?$/ },
  'an operator of the plane': { kick: /^\d kicked$/, list: /^acme,globex$/, 'read metrics': /acme,globex/ },
  nobody: {},
  "a gateway's own certificate": {},
  "a hub's own certificate": {},
  'a forged caller of acme': {},
  'a forged agent of acme': {},
  'a forged gateway': {},
  'a forged hub': {},
};

/** A record of something that was refused. */
interface Refusal {
  readonly record?: string;
  readonly rule?: string;
  readonly text?: string;
  readonly outcome?: string;
  readonly of?: string;
  readonly count?: number;
  readonly operator?: { readonly identity: string; readonly tenant?: string };
}

function recordsIn(path: string): Refusal[] {
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : [];
  return lines.map((line) => JSON.parse(line) as Refusal);
}

/**
 * Whether a record tells who was refused: by the serial number of its certificate, as an operator, or as somebody without one. Of many
 * refusals of one kind, the last have only a count: here those of the admin port.
 */
function isOf(
  { record, text = '', outcome, operator, of, count = 0 }: Refusal,
  identity: Identity | undefined,
): boolean {
  if (record === 'operation') return outcome === 'refused' && operator?.identity === 'CN=operator';
  if (record === 'refusals') return of === 'admin' && count > 0;
  if (record !== 'refusal') return false;
  return identity ? text.includes(serialOf(identity)) : /(sent|showed) no/.test(text);
}

/**
 * Tries until it gains what it may. On a busy machine, an agent may lose its session after the test has seen it, and comes back. A refusal
 * counts at once.
 */
async function gains(attempt: () => Promise<string>, expected: RegExp): Promise<void> {
  let gained = '';
  const refusals: unknown[] = [];
  const isOver = async () => {
    try {
      gained = await attempt();
    } catch (error) {
      gained = String(error);
      if (!gained.includes('NOT_FOUND')) refusals.push(error);
    }
    return refusals.length > 0 || expected.test(gained);
  };
  await until(isOver, { what: () => `${expected} instead of ${gained}` });
  assert.deepEqual(refusals, []);
}

test('each may do what its credential allows, and all else is refused and audited', {
  skip: redisMissing(),
}, async (t) => {
  await using scope = new Scope();
  const operators = await Authority.create(await tempDir(scope), 'operators');
  const { cert, key } = await operators.server();
  const admin = { 'admin-server-cert': cert, 'admin-server-key': key, 'admin-ca-cert': operators.cert };
  const plane = await tenantsPlane(scope, { gatewayFlags: admin, hubFlags: admin });
  const acme = await addCluster(scope, plane, 'acme');
  const globex = await addCluster(scope, plane, 'globex');
  const hub: Operated = { port: plane.hub.program.adminPort, ca: operators };
  const { peers } = plane.trust;
  const operator = (tenant: string) => operators.client('operator', spiffe(`tenant/${tenant}/operator/ann`));

  const actors: Readonly<Record<string, Identity | undefined>> = {
    'a caller of acme': await acme.trust.caller(),
    'a caller of globex': await globex.trust.caller(),
    'an agent of acme': await acme.trust.agent('edge-2'),
    'an operator of acme': await operator('acme'),
    'an operator of globex': await operator('globex'),
    'an operator of the plane': await operators.client('operator'),
    nobody: undefined,
    "a gateway's own certificate": await peers.peer(['gateway']),
    "a hub's own certificate": await peers.peer(['hub'], { uses: ['client', 'server'] }),
    'a forged caller of acme': await acme.trust.callers.foreign('kube-apiserver'),
    'a forged agent of acme': await acme.trust.cluster.foreign('edge-2'),
    'a forged gateway': await peers.foreign('gateway'),
    'a forged hub': await peers.foreign('hub'),
  };
  const attempts: Readonly<Record<Action, Attempt>> = {
    'dial acme': dialTo(plane, acme),
    'dial globex': dialTo(plane, globex),
    claim: claimOf(plane, acme, 'edge-2'),
    list: list(hub),
    kick: kick(hub, 'acme', 'edge-1'),
    'read metrics': readMetrics(hub),
  };
  assert.deepEqual(Object.keys(actors), Object.keys(MAY));
  /** At the gateway, which dials, and at the hub, which is asked: a gateway learns a moment later that a session was kicked. */
  const bothThere = async () => {
    const pages = await Promise.all(
      [plane.gateway, plane.hub].map(({ program }) => program.metric('isthmus_tenant_sessions')),
    );
    return pages.every((sessions) => [...sessions.values()].filter((count) => count > 0).length === 2);
  };

  for (const [actor, identity] of Object.entries(actors)) {
    for (const action of ACTIONS) {
      const allowed = MAY[actor]?.[action];
      await t.test(`${actor}: ${action} ${allowed ? 'works' : 'is refused'}`, async () => {
        await using scope = new Scope();
        if (allowed) {
          // An agent that was kicked comes back.
          await until(bothThere, { what: 'a session of each cluster' });
          await gains(() => attempts[action](scope, identity), allowed);
          return;
        }
        const log = action.startsWith('dial') ? plane.audit.gateway : plane.audit.hub;
        const before = recordsIn(log).length;
        await assert.rejects(attempts[action](scope, identity));
        const told = () =>
          recordsIn(log)
            .slice(before)
            .find((record) => isOf(record, identity));
        const record = await until(told, {
          what: () => `a record of it after ${JSON.stringify(recordsIn(log).slice(before))}`,
        });
        if (action.startsWith('dial'))
          assert.match(record.rule ?? '', new RegExp(`^${action.slice(5)}\\.yaml: callers`));
        if (action === 'claim') assert.match(record.rule ?? '', /^acme\.yaml: agents/);
      });
    }
  }
});
