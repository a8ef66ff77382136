import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { type KubeClient, kubeClient } from './client.ts';
import { KUBE } from './defaults.ts';
import { cutEvent, deletionCost, podOf } from './pod.ts';
import { FakeApiServer, failure, PATCHED_POD } from './testing/api-server.ts';

const POD = { namespace: 'isthmus-agent', name: 'agent-1', uid: 'u' };

describe("a pod's deletion cost, and the event of its end", () => {
  let api: FakeApiServer;
  let client: KubeClient;
  let times: Disposable;
  let tunnels = 0;
  /** How often the number of tunnels was looked at. */
  let looks = 0;
  const notes: string[] = [];

  beforeEach(async () => {
    times = changed(KUBE, { deletionCostMs: 5 });
    api = await FakeApiServer.start();
    client = await kubeClient({ source: async () => api.connection, qps: -1 });
    tunnels = 0;
    looks = 0;
    notes.length = 0;
  });
  afterEach(async () => {
    client[Symbol.dispose]();
    times[Symbol.dispose]();
    await api[Symbol.asyncDispose]();
  });

  function keep(by = client) {
    const look = () => {
      looks++;
      return tunnels;
    };
    return deletionCost({ client: by, pod: POD, tunnels: look, note: (text) => notes.push(text) });
  }

  /** Waits for two more looks: what the first one leads to has happened by the second. */
  function rounds() {
    const before = looks;
    return until(() => looks >= before + 2, 'two more looks');
  }

  it('follows the tunnels in powers of two, with a write only when it changes', async () => {
    await using _cost = keep();
    for (const [count, cost] of [
      [0, '0'],
      [1, '1'],
      [7, '4'],
      [5000, '4096'],
      [0, '0'],
    ] as const) {
      tunnels = count;
      await until(() => api.costs.get(PATCHED_POD)?.cost === cost, { what: `the cost ${cost}` });
      await rounds();
    }
    assert.deepEqual(api.calls, Array(5).fill(`PATCH ${PATCHED_POD}`));
    assert.deepEqual(notes, []);
  });

  it('is written once in each interval at most', async () => {
    using _times = changed(KUBE, { deletionCostMs: 30 });
    const writes: number[] = [];
    api.intercept = () => {
      writes.push(performance.now());
      return false;
    };
    await using _cost = keep();
    for (let count = 1; count <= 4; count++) {
      await until(() => writes.length === count);
      tunnels = 2 ** count;
    }
    // An interval begins with the answer. A timer may fire a millisecond early.
    const gaps = writes.slice(1).map((at, index) => at - (writes[index] as number));
    assert.ok(Math.min(...gaps) >= 29, `${gaps}`);
  });

  it("is left alone if the pod's template or another controller has set it", async () => {
    api.costs.set(PATCHED_POD, { cost: '100', manager: 'kube-controller-manager' });
    await using _cost = keep();
    await until(() => notes.length > 0);
    tunnels = 9;
    await rounds();
    assert.deepEqual(api.costs.get(PATCHED_POD), { cost: '100', manager: 'kube-controller-manager' });
    assert.equal(api.calls.length, 1);
    assert.match(
      notes.join('\n'),
      /^the pod's deletion cost is not kept: another controller sets controller\.kubernetes/,
    );
  });

  it('is given up when another controller takes it later', async () => {
    await using _cost = keep();
    await until(() => api.costs.has(PATCHED_POD));
    api.costs.set(PATCHED_POD, { cost: '-7', manager: 'autoscaler' });
    tunnels = 3;
    await until(() => notes.length > 0);
    await rounds();
    assert.equal(api.costs.get(PATCHED_POD)?.cost, '-7');
    assert.equal(notes.length, 1);
  });

  it('is not tried again without the right to it, and said once', async () => {
    api.intercept = (_request, response) => {
      failure(response, 403, 'Forbidden');
      return true;
    };
    await using _cost = keep();
    await until(() => notes.length > 0);
    tunnels = 3;
    await rounds();
    assert.equal(api.calls.length, 1);
    assert.deepEqual(notes, [
      "the pod's deletion cost is not kept: the agent may not patch pods/status in its namespace",
    ]);
  });

  for (const [name, intercept] of [
    ['fails', (_: IncomingMessage, response: ServerResponse) => failure(response, 500, 'InternalError')],
    ['is silent', () => {}],
    ['hangs up', (request: IncomingMessage) => request.socket.destroy()],
    ['rejects the token', (_: IncomingMessage, response: ServerResponse) => failure(response, 401, 'Unauthorized')],
  ] as const)
    it(`is written later if the API server ${name} for a while, and nothing is said`, async () => {
      let faults = 2;
      api.intercept = (request, response) => {
        if (faults-- <= 0) return false;
        intercept(request, response);
        return true;
      };
      tunnels = 2;
      using impatient = await kubeClient({ source: async () => api.connection, qps: -1, timeoutMs: 500 });
      await using _cost = keep(impatient);
      await until(() => api.costs.get(PATCHED_POD)?.cost === '2');
      assert.deepEqual(notes, []);
    });

  it('is followed by an event on the pod when its agent ends with tunnels open', async () => {
    await cutEvent(client, POD, 'edge-7', 12);
    const [{ call, body } = assert.fail('no call')] = api.seen;
    assert.equal(call, 'POST /api/v1/namespaces/isthmus-agent/events');
    const { metadata, involvedObject, type, reason, message } = body as Record<string, Record<string, string> | string>;
    const { name = '', namespace } = metadata as Record<string, string>;
    assert.match(name, /^agent-1\.[0-9a-f]{16}$/);
    assert.equal(namespace, 'isthmus-agent');
    assert.deepEqual(involvedObject, { apiVersion: 'v1', kind: 'Pod', ...POD });
    assert.deepEqual([type, reason], ['Warning', 'TunnelsCut']);
    assert.equal(message, 'edge-7 ended with 12 tunnels open, which were cut: isthmus cuts says whose');
  });

  it('ends in good time where no event can be written, and quietly', async () => {
    api.intercept = (_request, response) => {
      failure(response, 403, 'Forbidden');
      return true;
    };
    await cutEvent(client, POD, 'edge-7', 1);
    assert.equal(api.calls.length, 1);
    api.intercept = () => true;
    await cutEvent(client, POD, 'edge-7', 1);
    assert.equal(api.calls.length, 2);
    assert.deepEqual(notes, []);
  });

  it('belongs to the pod that the token names', () => {
    const token = (claims: unknown) => `h.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.s`;
    const bound = { 'kubernetes.io': { namespace: 'isthmus-agent', pod: { name: 'agent-1', uid: 'u' } } };
    assert.deepEqual(podOf(token(bound)), POD);
    for (const other of ['', 'secret', 'a.b.c', token({}), token(null), token({ 'kubernetes.io': { namespace: 'n' } })])
      assert.equal(podOf(other), undefined);
  });
});
