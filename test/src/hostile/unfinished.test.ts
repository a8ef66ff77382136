import assert from 'node:assert/strict';
import test from 'node:test';
import { encodePacket, type Packet } from '@isthmus/proto';
import { allInOne, echo, Scope, until } from '../harness/index.ts';
import { block, FLAG, FrameSocket, frame, PREFACE, settings, TYPE } from './frames.ts';
import { attack, bystander, raw } from './rig.ts';
import { memory } from './strangers.ts';

const MIB = 1024 * 1024;
const STREAMS = 150;

/** Returns a gRPC message of 4 MiB or less, of which only the beginning is sent. */
function message(packet: Packet): Buffer {
  const bytes = encodePacket(packet, 5);
  bytes[0] = 0;
  bytes.writeUInt32BE(bytes.length - 5, 1);
  return bytes;
}

const UNFINISHED: readonly [name: string, bytes: Buffer][] = [
  ['data', message({ type: 'DATA', connectID: 1n, error: '', data: Buffer.alloc(4 * MIB) })],
  ['a dial', message({ type: 'DIAL_REQ', protocol: 'tcp', address: 'x'.repeat(4 * MIB - 64), random: 1n })],
  ['a dial of 100 KB', message({ type: 'DIAL_REQ', protocol: 'tcp', address: 'x'.repeat(100_000), random: 1n })],
];

const CALL = block([
  [':method', 'POST'],
  [':scheme', 'http'],
  [':path', '/ProxyService/Proxy'],
  [':authority', 'x'],
  ['te', 'trailers'],
  ['content-type', 'application/grpc'],
]);

/** How many bytes of each message are sent at most: enough for 150 MiB. */
const MOST = MIB;

/** Sends all but the last bytes of each message, as far as the windows of its stream allow. @returns how many bytes went */
async function pour(peer: FrameSocket, bytes: Buffer): Promise<number> {
  const windows = new Map<number, number>();
  peer.onFrame = ({ type, stream, payload }) => {
    const window = windows.get(stream);
    if (window === undefined) return;
    if (type === TYPE.WINDOW_UPDATE) windows.set(stream, window + payload.readUInt32BE());
    // The server resets streams that it does not accept.
    if (type === TYPE.RST_STREAM) windows.delete(stream);
  };
  const sent = new Map<number, number>();
  for (let id = 1; id < 2 * STREAMS; id += 2) {
    windows.set(id, 65_535);
    sent.set(id, 0);
    await peer.send(frame(TYPE.HEADERS, FLAG.END_HEADERS, id, CALL));
  }
  const round = async () => {
    let went = 0;
    for (const [id, window] of [...windows]) {
      const at = sent.get(id) ?? 0;
      const length = Math.min(16_384, window, Math.min(MOST, bytes.length - 10) - at);
      if (length <= 0) continue;
      windows.set(id, window - length);
      sent.set(id, at + length);
      went += length;
      await peer.send(frame(TYPE.DATA, 0, id, bytes.subarray(at, at + length)));
    }
    return went;
  };
  let pings = 0;
  for (let idle = 0; idle < 3; ) {
    idle = (await round()) > 0 ? 0 : idle + 1;
    // Whatever the server sends about this arrives before the PING's answer.
    await peer.send(frame(TYPE.PING, 0, 0, Buffer.alloc(8)));
    pings++;
    await until(() => peer.frames.filter(({ type }) => type === TYPE.PING).length >= pings, { what: 'a PING back' });
  }
  let sum = 0;
  for (const bytes of sent.values()) sum += bytes;
  return sum;
}

test('the server does not hold unfinished messages: 150 streams of a caller take no more than their windows', async (t) => {
  await using scope = new Scope();
  const { server, agents } = await allInOne(scope);
  const { program } = server;
  const destination = await echo(scope);
  const victim = await bystander(scope, server.connect, destination.authority, [program, ...agents]);
  for (const [name, bytes] of UNFINISHED) {
    await attack(t, victim, name, async (scope) => {
      const peer = new FrameSocket(await raw(scope, server.grpc));
      await peer.send(PREFACE, settings());
      await peer.frame(TYPE.SETTINGS);
      const before = await memory(program);
      const sent = await pour(peer, bytes);
      const grown = (await memory(program)) - before;
      t.diagnostic(`${name}: ${(sent / MIB).toFixed(1)} MiB went, the server grew by ${(grown / MIB).toFixed(1)} MiB`);
      assert.ok(grown < 128 * MIB, `the server grew by ${(grown / MIB).toFixed(0)} MiB`);
    });
  }
});
