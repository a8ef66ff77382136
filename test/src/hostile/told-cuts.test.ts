import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisMissing } from '@isthmus/directory/testing';
import { type CutMessage, LinkClient, requestHoldLink, TRANSPORT } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import { open, scoped, within } from '../harness/index.ts';
import { addCluster, callerOf, dialled, tenantsPlane } from '../tenants/rig.ts';

const LINKS = 40;
/** Below what a link may say at once and in a second, so that none ends. */
const CUTS = 700;
const CUTS_A_SECOND = 70;
const DIALS = 40;

const CUT: CutMessage = {
  type: 'cut',
  dial: '0123456789abcdef',
  by: 'path',
  reason: 'no way to the agent',
  destination: '10.0.0.1:443',
  agent: 'edge-1',
  gateway: 'gateway-0',
  hold: 'apiserver-1',
  trace: '',
  ms: 1000,
  agoMs: 0,
  up: 1,
  down: 2,
};

test(
  "40 links of one tenant's isthmus hold that tell of old cuts fail no dial of another tenant, and more links than it may have are refused",
  { skip: redisMissing(), timeout: 180_000 },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope);
    const [loud, quiet] = [await addCluster(scope, plane, 'loud'), await addCluster(scope, plane, 'quiet')];
    const via = await callerOf(plane, loud.trust);
    const linked = async () => {
      const socket = await open(scope, via);
      await requestHoldLink(socket, 30_000);
      return socket;
    };
    const links: LinkClient[] = [];
    for (let n = 0; n < LINKS; n++) {
      const socket = await linked();
      const link = new LinkClient({ socket, peer: 'the gateway', to: 'gateway', events: planeEvents() });
      scope.defer(() => link.destroy(new Error('test over')));
      await within(link.accepted({ timeout: 60_000 }), { what: 'a link' });
      links.push(link);
    }
    const caller = await callerOf(plane, quiet.trust);
    // The last told are the oldest.
    let agoMs = 3_400_000;
    const tell = () => {
      for (const link of links) link.send({ ...CUT, agoMs: agoMs++ });
    };
    for (let n = 0; n < CUTS; n++) tell();
    const telling = setInterval(tell, 1000 / CUTS_A_SECOND);
    scope.defer(() => clearInterval(telling));
    const said: string[] = [];
    for (let n = 0; n < DIALS; n++) {
      const answer = await dialled(scope, caller, quiet.destination.authority);
      said.push(answer.status === 200 ? answer.said : `${answer.status} ${answer.body}`);
    }
    clearInterval(telling);
    assert.deepEqual(said, Array(DIALS).fill('quiet'));
    assert.equal(links.filter(({ usable }) => usable).length, LINKS, 'a tenant that says too much is only slowed');
    const more = TRANSPORT.holdLinksOfTenant - LINKS;
    for (let n = 0; n < more; n++) await linked();
    await assert.rejects(linked(), /503 tenant loud has 64 links of isthmus hold/);
    const other = await open(scope, caller);
    await requestHoldLink(other, 30_000);
  }),
);
