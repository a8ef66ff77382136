import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WIRE } from '../defaults.ts';
import { ErrorCode, FrameType, headersFrames, settingsFrame } from '../http2/frames.ts';
import { encodeHead } from '../http2/heads.ts';
import { streamsOf } from '../http2/testing.ts';
import { ClientCall } from './call.ts';
import type { StatusError } from './status.ts';

/** A call at a server that the test plays. */
function called() {
  const { streams, reading, sent } = streamsOf('client');
  reading.read(settingsFrame({}));
  const head = { ':method': 'POST', ':scheme': 'http', ':path': '/', ':authority': 'h' };
  const heard = { left: 0, closed: [] as (StatusError | undefined)[] };
  const call = new ClientCall(streams.request(encodeHead(head)), 'h', 0, () => void heard.left++);
  call.start({ packet() {}, drain() {}, closed: (error) => void heard.closed.push(error) });
  const end = (fields: Record<string, string>) =>
    reading.read(Buffer.concat(headersFrames(1, encodeHead({ ':status': '200', ...fields }), true, 16_384)));
  return { call, heard, end, sent };
}

test('a call that its server has ended is reset if what it sent does not leave', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { call, heard, end, sent } = called();
  call.send({ type: 'DATA', connectID: 1n, error: '', data: Buffer.alloc(100_000) });
  end({ 'grpc-status': '0' });
  assert.deepEqual(heard, { left: 0, closed: [undefined] });
  context.mock.timers.tick(WIRE.flushMs);
  assert.deepEqual((await sent()).at(-1), [FrameType.RST_STREAM, 1, ErrorCode.CANCEL]);
  assert.deepEqual(heard, { left: 1, closed: [undefined] });
});

test('what a server says of the end of a call is safe to show', () => {
  const { heard, end } = called();
  end({ 'grpc-status': '14', 'grpc-message': '%1b]0;n%c3%b6%07' });
  assert.deepEqual(
    heard.closed.map((error) => [error?.code, error?.message]),
    [['Unavailable', '\\u{1b}]0;n\u00f6\\u{7}']],
  );
});
