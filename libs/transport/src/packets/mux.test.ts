import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Packet } from '@isthmus/proto';
import type { PacketChannel } from '@isthmus/wire';
import { PacketOutbox } from './mux.ts';

const packet = { type: 'data' } as unknown as Packet;

test('a turn that fails ends its own tunnel alone: what was posted behind it leaves, and the channel ends', () => {
  const sent: Packet[] = [];
  let ended = 0;
  const outbox = new PacketOutbox({
    send: (each: Packet) => sent.push(each) > 0,
    end: () => void ended++,
    destroy: (error: Error) => assert.fail(error),
  } as unknown as PacketChannel);
  const fails = () => {
    outbox.post(packet);
    throw new Error('a defect');
  };
  assert.throws(() => outbox.queue(fails), /a defect/);
  outbox.queue(() => outbox.send(packet));
  assert.equal(sent.length, 2);
  outbox.end();
  assert.equal(ended, 1);
});
