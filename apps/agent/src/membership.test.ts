import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type HubMember, TRANSPORT } from '@isthmus/transport';
import { type Membership, membershipOf, type Report, ranking, silent, updated } from './upkeep.ts';

function hub(hubId: string, more: Partial<HubMember> = {}): HubMember {
  return { hubId, address: `${hubId}:8091`, zone: '', draining: false, generation: 1, ...more };
}

function told(...hubs: HubMember[]) {
  return { type: 'membership', current: true, hubs } as const;
}

function change(changed: HubMember[], gone: string[] = [], current = true) {
  return { type: 'membership-change', current, changed, gone } as const;
}

/** Links of one agent, each with what its hub reported. */
class Links {
  now = 0;
  readonly reports = new Map<string, Report>();
  last: Report | undefined;

  begin(link: string): void {
    this.reports.set(link, silent(this.now));
  }

  hear(link: string, message: Parameters<typeof updated>[1]): void {
    this.reports.set(link, updated(this.reports.get(link), message, this.now));
  }

  end(link: string): void {
    const report = this.reports.get(link);
    this.reports.delete(link);
    if (report && report.hubs.size > 0) this.last = report;
  }

  get membership(): Membership {
    return membershipOf([...this.reports.values()], this.last, this.now);
  }
}

test('changes are applied to what the same link told, and a new list replaces it', () => {
  const links = new Links();
  links.hear('link', told(hub('a'), hub('b')));
  links.hear('link', change([hub('b', { draining: true }), hub('c')], ['a']));
  assert.deepEqual(links.membership.hubs, [hub('b', { draining: true }), hub('c')]);
  links.hear('link', told(hub('d')));
  assert.deepEqual(links.membership.hubs, [hub('d')]);
});

test('of what links say about one hub the later generation holds, and that it drains', () => {
  const links = new Links();
  links.hear('left', told(hub('a'), hub('b', { generation: 2 }), hub('c')));
  links.hear('right', told(hub('a', { draining: true }), hub('b'), hub('d')));
  assert.deepEqual(links.membership.hubs, [
    hub('a', { draining: true }),
    hub('b', { generation: 2 }),
    hub('c'),
    hub('d'),
  ]);
});

test('what is not renewed in time is not believed any more', () => {
  const links = new Links();
  links.hear('link', told(hub('a')));
  links.now = TRANSPORT.membershipTtlMs - 1;
  links.hear('link', change([]));
  links.now = 2 * TRANSPORT.membershipTtlMs - 2;
  assert.deepEqual([links.membership.hubs, links.membership.current], [[hub('a')], true]);
  links.now++;
  assert.deepEqual([links.membership.hubs, links.membership.current, links.membership.away], [[], false, true]);
  assert.deepEqual(links.membership.candidates, [hub('a')], 'an address may still be right');
  links.hear('link', change([hub('b')]));
  assert.deepEqual(links.membership.hubs, [hub('a'), hub('b')]);
});

test('where to connect without a link is what the last one said, and after its time also of hubs that drained', () => {
  const links = new Links();
  links.hear('left', told(hub('a'), hub('b')));
  links.hear('right', told(hub('b'), hub('c', { draining: true })));
  links.end('left');
  assert.deepEqual(links.membership.candidates, [hub('b'), hub('c', { draining: true })]);
  links.end('right');
  assert.deepEqual([links.membership.hubs, links.membership.current, links.membership.stale], [[], false, false]);
  links.begin('silent');
  links.end('silent');
  assert.deepEqual(links.membership.candidates, [hub('b'), hub('c', { draining: true })]);
  links.now = TRANSPORT.membershipTtlMs;
  assert.deepEqual([links.membership.candidates, links.membership.stale], [[hub('b'), hub('c')], true]);
});

test('a link that is there and has not told yet counts as one whose registry does not answer', () => {
  const links = new Links();
  links.hear('old', told(hub('a')));
  links.begin('fresh');
  assert.deepEqual([links.membership.current, links.membership.away], [false, false]);
  links.hear('fresh', told(hub('a')));
  assert.deepEqual([links.membership.current, links.membership.away], [true, false]);
  links.hear('fresh', change([], [], false));
  assert.deepEqual([links.membership.current, links.membership.away], [false, true]);
  links.end('fresh');
  links.begin('third');
  links.now = TRANSPORT.membershipTtlMs - 1;
  links.hear('old', change([]));
  links.now = TRANSPORT.membershipTtlMs;
  assert.deepEqual([links.membership.current, links.membership.away], [false, true], 'it never told');
});

test('it is current when the registry answers every hub that is connected', () => {
  const links = new Links();
  assert.equal(links.membership.current, false);
  links.hear('left', told(hub('a')));
  assert.equal(links.membership.current, true);
  links.hear('right', change([], [], false));
  assert.equal(links.membership.current, false);
  links.end('right');
  assert.equal(links.membership.current, true);
});

test('a hub that tells of ever more hubs is not remembered without bound', () => {
  const links = new Links();
  for (let index = 0; index < 5000; index++) links.hear('link', change([hub(`h${index}`)]));
  assert.equal(links.membership.hubs.length, 1024);
});

const HUBS = ['a', 'b', 'c', 'd'].map((hubId) => hub(hubId));
const AGENT = { agentId: 'agent-1', zone: '' };

test('hubs of the own zone come first, and hubs that drain not at all', () => {
  const [first, second, third, fourth] = ranking(AGENT, HUBS).map(({ hubId }) => hubId);
  const hubs = HUBS.map((one) => ({ ...one, zone: one.hubId === fourth ? 'z' : 'y', draining: one.hubId === first }));
  const ranked = ranking({ ...AGENT, zone: 'z' }, hubs).map(({ hubId }) => hubId);
  assert.deepEqual(ranked, [fourth, second, third]);
});

test('a hub that joins moves its own share and no more', () => {
  const best = (agentId: string, hubs: readonly HubMember[]) =>
    ranking({ agentId, zone: '' }, hubs)
      .slice(0, 2)
      .map(({ hubId }) => hubId);
  for (let index = 0; index < 1000; index++) {
    const before = best(`agent-${index}`, HUBS);
    const after = best(`agent-${index}`, [...HUBS, hub('e')]);
    const kept = after.filter((hubId) => before.includes(hubId)).length;
    assert.equal(kept, after.includes('e') ? 1 : 2);
  }
});
