import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { EXIT, styleOf, unansweredText } from '../output.ts';
import { type Member, REGISTRY, type RoleName } from '../plane/member.ts';
import { foldedProse } from '../table.ts';
import { exitOf, memberView, statusText, statusView } from './status.ts';

const NOW = Date.parse('2026-05-01T12:00:00Z');
const { ROLE_GATEWAY, ROLE_HUB } = adminApi.Role;

function member(id: string, ...roles: RoleName[]): Member {
  return { id, roles, address: `${id}:8095`, version: '0.1.0', zone: '' };
}

const status = (roles: adminApi.Role[], more: adminApi.DeepPartial<adminApi.GetStatusResponse> = {}) =>
  adminApi.GetStatusResponse.fromPartial({ roles, ready: true, nowMs: NOW, sessions: 4, ...more });

const gateway = { member: member('gw-1', 'gateway'), value: status([ROLE_GATEWAY]) };
const hub = { member: member('hub-1', 'hub'), value: status([ROLE_HUB], { sessions: 2 }) };

function viewOf(...answers: readonly (typeof hub)[]) {
  const members = answers.map(({ member: { id, address, roles }, value }) => {
    return { id, address, roles, version: value.version, status: value };
  });
  const evidence = { members, hubs: [], sessions: [], clocks: [], now: NOW };
  return statusView({ statuses: { answers, unanswered: [] }, evidence });
}

describe('isthmus status', () => {
  it('counts as sessions those that a hub holds, as isthmus hubs does', () => {
    const both = { member: member('s', 'gateway', 'hub'), value: status([ROLE_GATEWAY, ROLE_HUB], { sessions: 3 }) };
    const shown = statusText(viewOf(gateway, hub, both), styleOf(false));
    const sessions = shown.split('\n').flatMap((line) => /^(\S+) .* (\d+|-) +0 +0 +0\.0 /.exec(line)?.slice(1) ?? []);
    assert.deepEqual(sessions, ['gw-1', '-', 'hub-1', '2', 's', '3']);
    const { sessions: held, knownSessions } = memberView(gateway);
    assert.deepEqual([held, knownSessions], [undefined, 4]);
    const wide = statusText(viewOf(gateway), styleOf(false, { columns: 80, wide: true }));
    assert.match(wide, / KNOWN +PENDING +PROGRAM +RUNTIME\n.* 4 +0 /);
  });

  it('does not count the registry among the members: it has only their list', () => {
    const reason = 'cannot get the list of other members (no answer): name the others with --address';
    const unanswered = [
      { member: 'hub-9', address: '', reason: 'gone' },
      { member: REGISTRY, address: '', reason },
    ];
    const shown = statusText({ ...viewOf(gateway), plane: 'p', unanswered }, styleOf(false));
    assert.match(shown, /^Plane p: 2 members\n/);
    assert.match(shown, /^hub-9 +- +no answer /m);
    assert.doesNotMatch(shown, /^Redis/m);
    const told = '\n1 member did not answer:\n  hub-9: gone\n';
    assert.equal(unansweredText(unanswered), `${told}\nRedis: ${reason}\n`);
  });

  it('shows a member that drains as one that does what it was told to', () => {
    const { ADMISSION_OPEN, ADMISSION_DRAINING } = adminApi.Admission;
    const shown = (admission: adminApi.Admission) => {
      const value = status([ROLE_HUB], { ready: false, admission });
      return { text: statusText(viewOf({ ...hub, value }), styleOf(false)), view: memberView({ ...hub, value }) };
    };
    assert.match(shown(ADMISSION_DRAINING).text, /^hub-1 +hub +draining /m);
    assert.match(shown(ADMISSION_OPEN).text, /^hub-1 +hub +NO /m);
    assert.equal(shown(ADMISSION_DRAINING).view.admission, 'draining');
  });

  it('fits a terminal of 80 columns, and breaks no word there', () => {
    const detail = 'no agent has connected since the start, and a hub without agents carries no dial anywhere'.repeat(
      2,
    );
    const text = 'certificate CN=a expires on 2026-05-04';
    const notices = [{ text, todo: 'renew it or ask whoever renews it to do so in time' }];
    const unready = status([ROLE_HUB], { ready: false, checks: [{ name: 'agents', ok: false, detail }], notices });
    const view = viewOf(gateway, { ...hub, value: unready });
    const style = styleOf(false, { columns: 80, wide: false });
    const shown = foldedProse(statusText(view, style), style);
    for (const line of shown.split('\n')) assert.ok(line.length <= 80, line);
    const words = (text: string) => text.slice(text.indexOf('Not ready')).split(/\s+/);
    assert.deepEqual(words(shown), words(statusText(view, styleOf(false))));
    assert.match(shown, /\n {2}hub-1: agents: no agent .*\n {4}\S/);
  });

  it('exits with 0 if all is well, and with 4 if all works and something needs attention', () => {
    assert.equal(exitOf(viewOf(gateway, hub)), EXIT.good);
    const refusal = {
      where: 'agents',
      remote: '10.0.0.7:1',
      reason: 'certificate has expired',
      count: 14,
      lastMs: NOW - 3000,
    };
    const cases: readonly [adminApi.DeepPartial<adminApi.GetStatusResponse>, RegExp][] = [
      [
        { refusals: [refusal] },
        /\nRejected recently:\n {2}gw-1, port for agents: refused 10\.0\.0\.7:1, 14 times, the last 3 s ago: .*\n {4}-> if the peer is yours/,
      ],
      [{ parkedDials: 3 }, /\nNeeds attention:\n {2}gw-1: 3 dials wait for a session\n {4}-> isthmus agents /],
      [
        { notices: [{ text: 'certificate CN=a expires on 2026-05-04', todo: 'renew it' }] },
        /\nTo fix:\n {2}gw-1: certificate CN=a expires on 2026-05-04: renew it/,
      ],
    ];
    for (const [more, says] of cases) {
      const view = viewOf({ ...gateway, value: status([ROLE_GATEWAY], more) });
      assert.match(statusText(view, styleOf(false)), says);
      assert.equal(exitOf(view), EXIT.attention);
      const unready = viewOf({ ...gateway, value: status([ROLE_GATEWAY], { ...more, ready: false }) });
      assert.equal(exitOf(unready), EXIT.wrong);
      const silent = [{ member: 'hub-9', address: '', reason: 'gone' }];
      assert.equal(exitOf({ ...view, unanswered: silent }), EXIT.unasked);
    }
  });
});
