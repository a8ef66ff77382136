import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, mock, test } from 'node:test';
import { readTenantFile, type Tenant, Tenants } from '@isthmus/admission';
import { Control, type ControlMessage, type HubMember, TRANSPORT } from '@isthmus/transport';
import { HUB } from './defaults.ts';
import { HubReports, Policies } from './membership.ts';

describe('membership', () => {
  beforeEach(() => mock.timers.enable({ apis: ['setInterval', 'setTimeout'] }));
  afterEach(() => mock.timers.reset());

  function hub(hubId: string, more: Partial<HubMember> = {}): HubMember {
    return { hubId, address: `${hubId}:8091`, zone: '', draining: false, generation: 1, ...more };
  }

  function listen(membership: HubReports) {
    const heard: ControlMessage[] = [];
    const stop = membership.add({ sendLine: (line) => heard.push(JSON.parse(line)) });
    return { stop, heard: () => heard.splice(0) };
  }

  test('a link hears of all hubs at its start, then of what changed', () => {
    const membership = new HubReports();
    membership.registry(true);
    membership.update([hub('a'), hub('b')]);
    mock.timers.tick(HUB.tellEveryMs);
    const { heard } = listen(membership);
    assert.deepEqual(heard(), [{ type: 'membership', current: true, hubs: [hub('a'), hub('b')] }]);
    membership.update([hub('a'), hub('b')]);
    mock.timers.tick(HUB.tellEveryMs);
    assert.deepEqual(heard(), []);
    membership.update([hub('a', { generation: 2 }), hub('c')]);
    const change = { changed: [hub('a', { generation: 2 }), hub('c')], gone: ['b'] };
    assert.deepEqual(heard(), [{ type: 'membership-change', current: true, ...change }]);
    membership.close();
  });

  test('changes within a short time are told as one, of which each link hears at its end', () => {
    const membership = new HubReports();
    membership.registry(true);
    const { heard } = listen(membership);
    heard();
    membership.update([hub('a'), hub('b')]);
    membership.update([hub('a', { draining: true }), hub('b'), hub('c')]);
    membership.update([hub('b'), hub('c', { generation: 2 })]);
    membership.registry(false);
    assert.deepEqual(heard(), []);
    mock.timers.tick(HUB.tellEveryMs);
    const changed = [hub('b'), hub('c', { generation: 2 })];
    assert.deepEqual(heard(), [{ type: 'membership-change', current: false, changed, gone: [] }]);
    mock.timers.tick(HUB.tellEveryMs);
    assert.deepEqual(heard(), []);
    membership.update(changed.slice(1));
    assert.deepEqual(heard(), [{ type: 'membership-change', current: false, changed: [], gone: ['b'] }]);
    membership.close();
  });

  test('a beat without a change renews what was told, until the link is gone', () => {
    const membership = new HubReports();
    const { heard, stop } = listen(membership);
    assert.deepEqual(heard(), [{ type: 'membership', current: false, hubs: [] }]);
    mock.timers.tick(TRANSPORT.membershipBeatMs);
    assert.deepEqual(heard(), [{ type: 'membership-change', current: false, changed: [], gone: [] }]);
    membership.registry(true);
    assert.deepEqual(heard(), [{ type: 'membership-change', current: true, changed: [], gone: [] }]);
    stop();
    mock.timers.tick(TRANSPORT.membershipBeatMs);
    assert.deepEqual(heard(), []);
    membership.close();
  });

  test('each link has its beat from its own start', () => {
    const membership = new HubReports();
    const early = listen(membership);
    mock.timers.tick(TRANSPORT.membershipBeatMs / 2);
    const late = listen(membership);
    mock.timers.tick(TRANSPORT.membershipBeatMs / 2);
    assert.deepEqual([early.heard().length, late.heard().length], [2, 1]);
    mock.timers.tick(TRANSPORT.membershipBeatMs / 2);
    assert.deepEqual([early.heard().length, late.heard().length], [0, 1]);
    membership.close();
  });

  test('thousands of links hear of changes in order, and not all in one tick', async () => {
    const membership = new HubReports();
    membership.registry(true);
    const links = Array.from({ length: 2000 }, () => listen(membership));
    for (const { heard } of links) heard();
    membership.update([hub('a')]);
    mock.timers.tick(HUB.tellEveryMs);
    membership.update([hub('a'), hub('b')]);
    const gone = links.pop();
    gone?.stop();
    const last = links.at(-1);
    const all: ControlMessage[] = [];
    let ticks = 0;
    for (; all.length < 2; ticks++) {
      await new Promise(setImmediate);
      mock.timers.tick(HUB.tellEveryMs);
      all.push(...(last?.heard() ?? []));
    }
    assert.ok(ticks > 2, `${ticks} ticks`);
    const change = { type: 'membership-change', current: true, gone: [] };
    const wanted = [hub('a'), hub('b')].map((one) => ({ ...change, changed: [one] }));
    assert.deepEqual(all, wanted);
    assert.deepEqual([links[0]?.heard(), gone?.heard()], [wanted, []]);
    membership.close();
  });

  test('a plane of many hubs is told in portions', () => {
    const membership = new HubReports();
    const hubs = Array.from({ length: 2 * TRANSPORT.hubsInMessage + 1 }, (_, index) => hub(`h${index}`));
    const early = listen(membership);
    early.heard();
    membership.update(hubs);
    const told = (messages: ControlMessage[]) =>
      messages.map((message) =>
        message.type === 'membership' ? message.hubs : 'changed' in message && message.changed,
      );
    const portions = [
      hubs.slice(0, TRANSPORT.hubsInMessage),
      hubs.slice(TRANSPORT.hubsInMessage, 2 * TRANSPORT.hubsInMessage),
      hubs.slice(2 * TRANSPORT.hubsInMessage),
    ];
    assert.deepEqual(told(early.heard()), portions);
    assert.deepEqual(told(listen(membership).heard()), portions);
    membership.close();
  });

  test('however many gateways go at once, a link hears of each, and of few at a time', () => {
    const membership = new HubReports();
    const { heard } = listen(membership);
    heard();
    const gone = Array.from({ length: 101 }, (_, index) => index.toString(16).padStart(16, '0'));
    for (const gateway of gone) membership.hungUp({ gateway, reset: false });
    const told: string[] = [];
    for (let beat = 0; beat * HUB.lossesAtOnce < gone.length; beat++) {
      const messages = heard();
      assert.ok(messages.length <= HUB.lossesAtOnce, `${messages.length} messages in beat ${beat}`);
      for (const message of messages) if (message.type === 'hung-up') told.push(message.gateway);
      mock.timers.tick(HUB.tellEveryMs);
    }
    assert.deepEqual(told, gone);
    membership.close();
  });

  test('hubs that drain are not counted as live', () => {
    const membership = new HubReports();
    membership.update([hub('a'), hub('b', { draining: true })]);
    assert.equal(membership.live, 1);
    membership.close();
  });

  test('what a plane of 2,000 hubs says that all drain, go and come back is within what a link takes', async () => {
    const membership = new HubReports();
    const stream = new PassThrough();
    const failed = new Set<string>();
    const seen = new Map<string, boolean>();
    let heard = 0;
    const told = (hubs: readonly HubMember[]) => {
      for (const { hubId, draining } of hubs) seen.set(hubId, draining);
    };
    new Control(stream, {
      lineBytes: TRANSPORT.hubLineBytes,
      receive: (message) => {
        heard++;
        if (message.type === 'membership') told(message.hubs);
        if (message.type !== 'membership-change') return;
        told(message.changed);
        for (const hubId of message.gone) seen.delete(hubId);
      },
      refused: assert.ifError,
      fault: assert.ifError,
      fail: ({ message }) => failed.add(message),
    });
    const name = (index: number) => `isthmus-backend-hub-${index}`;
    const address = (hubId: string) => `${hubId}.hubs.isthmus.svc.cluster.local:8091`;
    const member = (index: number, more: Partial<HubMember> = {}) =>
      hub(name(index), {
        address: address(name(index)),
        zone: 'eu-central-1a',
        generation: 1_795_372_730_000,
        ...more,
      });
    const hubs = new Map(Array.from({ length: 2000 }, (_, index) => [index, member(index)]));
    membership.update(hubs.values());
    let sent = 0;
    membership.add({
      sendLine: (line) => {
        sent++;
        stream.write(line);
      },
    });
    const step = () => {
      membership.update(hubs.values());
      mock.timers.tick(1);
    };
    for (const index of [...hubs.keys()]) {
      hubs.set(index, member(index, { draining: true }));
      step();
    }
    for (const index of [...hubs.keys()]) {
      hubs.delete(index);
      step();
    }
    for (let index = 0; index < 2000; index++) {
      hubs.set(index, member(index, { generation: 1_795_372_790_000 }));
      step();
    }
    mock.timers.tick(1000);
    membership.close();
    stream.end();
    await once(stream, 'end');
    assert.deepEqual([...failed], []);
    assert.equal(heard, sent);
    assert.deepEqual([seen.size, [...seen.values()].filter(Boolean).length], [2000, 0]);
  });
});

function tenant(lines: string): Tenant {
  const tenants = new Tenants();
  tenants.update(new Map([['a.yaml', { read: readTenantFile(`tenant: a\n${lines}`), credentials: new Map() }]]));
  return tenants.get('a') as Tenant;
}

function link() {
  const told: unknown[] = [];
  const closed = Promise.withResolvers<Error>();
  return {
    told,
    end: () => closed.resolve(new Error('over')),
    send: ({ type: _, ...rules }: ControlMessage) => void told.push(rules),
    closed: closed.promise,
  };
}

test('agents hear the rules of their tenant when they come, and each change once', async () => {
  const policies = new Policies();
  const [first, second] = [link(), link()];
  policies.add(tenant(''), first);
  assert.deepEqual(first.told, [{}]);
  const narrow = tenant('dial: {deny: [{cidr: 10.0.0.1/32}]}');
  policies.renew(narrow);
  policies.renew(tenant('dial: {deny: [{cidr: 10.0.0.1/32}]}\nlimits: {agents: 1}'));
  policies.add(narrow, second);
  const rules = { deny: [{ cidr: '10.0.0.1/32' }] };
  assert.deepEqual([first.told, second.told], [[{}, rules], [rules]]);
  first.end();
  await first.closed;
  policies.renew(tenant(''));
  assert.deepEqual([first.told.length, second.told], [2, [rules, {}]]);
});
