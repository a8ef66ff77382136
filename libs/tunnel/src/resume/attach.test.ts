import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadlines } from '../deadlines.ts';
import type { Attached, AttachRequest } from '../dial.ts';
import { SessionLost } from '../errors.ts';
import { observedAttach } from '../observe.ts';
import { established, noTracer, RecordingCarrier, request } from '../testing/index.ts';
import { attachThrough } from './attach.ts';

const asked: AttachRequest = {
  ...request,
  session: 's',
  halfAtPeer: true,
  claim: { number: 1, received: 0, taken: 0, secret: 'e'.repeat(32) },
};

/** A tracer that fails at each answer. */
const tracer = {
  ...noTracer,
  start: () => ({
    traceparent: undefined,
    end({ error }: { readonly error?: Error }) {
      if (!error) throw new Error('a defect of the tracer');
    },
  }),
};

test('an attach whose answer cannot be reported leaves no stream to the agent, and does not end the tunnel', async () => {
  const aborted: unknown[] = [];
  const { end, ...names } = established();
  const attached: Attached = {
    ...names,
    end: Object.assign(end, { abort: (reason: Error) => void aborted.push(reason) }),
    answer: { from: 0, received: 0, taken: 0 },
    carrier: new RecordingCarrier(),
  };
  const attach = async () => attached;
  await assert.rejects(observedAttach(attach, { tracer })(asked), /a defect of the tracer/);
  const directory = { ownHub: undefined } as Parameters<typeof attachThrough>[3]['directory'];
  const suspects = { accuse: () => assert.fail('the session did nothing wrong') };
  const options = { directory, suspects, tracer, deadlines: new Deadlines(), silentMs: 1000, ownDeadline: true };
  await assert.rejects(attachThrough({ attach }, { hubId: 'h' }, asked, options), /a defect of the tracer/);
  assert.equal(aborted.length, 2);
  for (const reason of aborted) assert.ok(reason instanceof SessionLost, String(reason));
});
