import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CUT_BY, PlaneEnded, type TunnelInfo } from '@isthmus/tunnel';
import { agent, beginning, resumable, samples, server, tunnel } from './testing.ts';

const LOST = new Error('the link was lost');

test('tunnels that are resumed and moved are counted, each starting at 0', async () => {
  const { events, metrics } = server({ role: 'gateway' });
  const how = () => beginning(metrics, 'isthmus_resumed_tunnels_total');
  assert.deepEqual(await how(), { '{how="resumed"}': 0, '{how="moved"}': 0 });
  events.emit('tunnel:attach', resumable(), 0);
  for (const paused of [40, 800]) {
    events.emit('tunnel:detach', resumable(), LOST);
    events.emit('tunnel:attach', resumable(), paused);
  }
  assert.deepEqual(await how(), { '{how="resumed"}': 2, '{how="moved"}': 1 });
});

test('a gateway counts the tunnels that were cut, by tenant and cause, from 0 on, and forgets a tenant that is gone', async () => {
  const { events, metrics } = server({ role: 'server' });
  const cuts = async () => {
    const all = await beginning(metrics, 'isthmus_tunnels_cut_total');
    return Object.fromEntries(Object.entries(all).filter(([, count]) => count > 0));
  };
  const open = tunnel('gateway');
  events.emit('tunnel:open', open);
  const all = await beginning(metrics, 'isthmus_tunnels_cut_total');
  const lines = CUT_BY.map((by) => `{tenant="${open.dial.tenant}",by="${by}"}`);
  assert.deepEqual(Object.keys(all), lines);
  assert.deepEqual(await cuts(), {});
  const error = new PlaneEnded('lost');
  for (const by of ['caller', 'destination'] as const) events.emit('tunnel:close', open, { how: 'closed', by }, 1);
  for (const by of ['agent', 'agent', 'limit'] as const)
    events.emit('tunnel:close', open, { how: 'cut', by, error }, 1);
  events.emit('tunnel:close', { ...open, role: 'hub' }, { how: 'cut', by: 'agent', error }, 1);
  const { tenant } = open.dial;
  assert.deepEqual(await cuts(), {
    [`{tenant="${tenant}",by="agent"}`]: 2,
    [`{tenant="${tenant}",by="limit"}`]: 1,
  });
  events.emit('tenants', { changed: [], gone: [tenant], inForce: 0 });
  assert.deepEqual(await cuts(), {});
});

test('a pause is measured from the loss until the tunnel goes on; a tunnel that moved had none', async () => {
  const { events, metrics } = server({ role: 'gateway' });
  events.emit('tunnel:attach', resumable(), 0);
  events.emit('tunnel:detach', resumable(), LOST);
  events.emit('tunnel:attach', resumable(), 40);
  const page = await beginning(metrics, 'isthmus_resume_pause_seconds');
  assert.deepEqual([page._sum, page._count, page['_bucket{le="0.025"}']], [0.04, 1, 0]);
  assert.equal(page['_bucket{le="0.05"}'], 1);
});

test('detached tunnels are counted until they go on or are given up', async () => {
  const { events, metrics } = server();
  const detached = async () => (await samples(metrics)).get('isthmus_detached_tunnels');
  for (let i = 0; i < 3; i++) events.emit('tunnel:detach', resumable(), LOST);
  assert.equal(await detached(), 3);
  events.emit('tunnel:attach', resumable(), 12);
  events.emit('tunnel:give-up', resumable());
  events.emit('tunnel:attach', resumable(), 0);
  assert.equal(await detached(), 1);
});

test('gateway and agent show the bytes that they keep, and nothing where tunnels are not resumed', async () => {
  const kept = async (metrics: Parameters<typeof samples>[0]) =>
    (await samples(metrics)).get('isthmus_resume_kept_bytes');
  const registry = { lastAnswerAt: undefined, behind: 0 };
  const [gateway, endpoint] = [server().metrics, agent().metrics];
  assert.deepEqual([await kept(gateway), await kept(endpoint)], [undefined, undefined]);
  gateway.measure({ registry, kept: () => 7 });
  endpoint.measure({ connected: 1, wanted: 1, kept: 9 });
  assert.deepEqual([await kept(gateway), await kept(endpoint)], [7, 9]);
  gateway.measure({ registry, kept: () => undefined });
  assert.equal(await kept(gateway), undefined);
});

test('a tunnel that moves is counted at the hub that carries it, whenever it moves', async () => {
  const { events, metrics } = server({ role: 'gateway' });
  const hubs = () => beginning(metrics, 'isthmus_hub_tunnels');
  const moving = resumable();
  const move = (hubId: string) => {
    moving.hubId = hubId;
    events.emit('tunnel:attach', moving, 0);
  };
  move('h2');
  // Its `hubId` is live, as that of a real one.
  const open: TunnelInfo = {
    ...tunnel('gateway'),
    resumable: moving,
    get hubId() {
      return moving.hubId;
    },
  };
  events.emit('tunnel:open', open);
  assert.deepEqual(await hubs(), { '{hub="h2"}': 1 });
  move('h3');
  assert.deepEqual(await hubs(), { '{hub="h3"}': 1 });
  move('h3');
  assert.deepEqual(await hubs(), { '{hub="h3"}': 1 });
  events.emit('tunnel:close', open, { how: 'closed', by: 'caller' }, 1);
  move('h4');
  assert.deepEqual(await hubs(), {});
  assert.deepEqual(await beginning(metrics, 'isthmus_tenant_tunnels'), {});
});

test('tunnels that an end reset are counted by which, from 0 on, and no others', async () => {
  const { events, metrics } = server({ role: 'server' });
  const resets = () => beginning(metrics, 'isthmus_reset_tunnels_total');
  assert.deepEqual(await resets(), { '{by="caller"}': 0, '{by="destination"}': 0 });
  const [open, error] = [tunnel('gateway'), new PlaneEnded('lost')];
  events.emit('tunnel:open', open);
  events.emit('tunnel:close', open, { how: 'failed', by: 'destination', error: new Error('read ECONNRESET') }, 1);
  events.emit('tunnel:close', open, { how: 'closed', by: 'caller' }, 1);
  events.emit('tunnel:close', open, { how: 'cut', by: 'agent', error }, 1);
  assert.deepEqual(await resets(), { '{by="caller"}': 0, '{by="destination"}': 1 });
});

test('a hub, which carries what others resume, has none of these families', async () => {
  const { metrics } = server({ role: 'hub' });
  for (const prefix of ['isthmus_resume', 'isthmus_detached']) assert.deepEqual(await beginning(metrics, prefix), {});
});
