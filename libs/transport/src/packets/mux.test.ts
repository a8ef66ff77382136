import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Packet } from '@isthmus/proto';
import { planeEvents } from '@isthmus/tunnel';
import type { PacketChannel } from '@isthmus/wire';
import { PacketMux } from './mux.ts';

const packet = { type: 'data' } as unknown as Packet;

test('a turn that fails ends its own tunnel alone: what was posted behind it leaves, and the channel ends', () => {
  const sent: Packet[] = [];
  let ended = 0;
  const channel = {
    start() {},
    send: (each: Packet) => sent.push(each) > 0,
    end: () => void ended++,
    destroy: (error: Error) => assert.fail(error),
  };
  const nothing = { receive() {}, closed() {} };
  const mux = new PacketMux(channel as unknown as PacketChannel, { role: 'hub', events: planeEvents(), ...nothing });
  const fails = () => {
    mux.post(packet);
    throw new Error('a defect');
  };
  assert.throws(() => mux.queue({ sendOne: fails }), /a defect/);
  mux.queue({ sendOne: () => mux.send(packet) });
  assert.equal(sent.length, 2);
  mux.end();
  assert.equal(ended, 1);
});
