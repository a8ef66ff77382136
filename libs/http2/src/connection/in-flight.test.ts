import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { DEFAULT_SETTINGS } from '../settings.ts';
import { InFlight } from './in-flight.ts';
import { Output } from './output.ts';
import { SendGroup } from './send-group.ts';

const KIB = 1024;
const FRAME = Buffer.alloc(16 * KIB);

/** More than an output would send in that many turns. */
const TURNS = 200;

/** An output to a socket that accepts everything at once, as a kernel with large buffers does, and a stream that always has more. */
function busy({ rtt = 0 } = {}) {
  const checkpoints: (() => void)[] = [];
  const checkpoint = (read: () => void) => {
    checkpoints.push(read);
    return Buffer.from('checkpoint');
  };
  const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const failed = () => assert.fail('nothing fails');
  const output = new Output({
    socket,
    greeting: Buffer.alloc(0),
    defer: setImmediate,
    maxBacklog: 2 ** 30,
    checkpoint,
    failed,
  });
  output.widen(2 ** 31 - 1 - DEFAULT_SETTINGS.initialWindowSize);
  const endless = (group: SendGroup) => ({
    offered: false,
    sendable: true,
    group,
    sent: 0,
    sendFrame(to: Output) {
      to.add(FRAME);
      this.sent += FRAME.length;
      return FRAME.length;
    },
  });
  return { output, checkpoints, endless, share: () => output.share(() => rtt) };
}

async function turns(): Promise<void> {
  for (let left = TURNS; left > 0; left--) await turn();
}

test('what groups share has little in flight that the other side has not read, whatever the kernel takes', async () => {
  const { output, checkpoints, endless, share } = busy();
  const flood = endless(new SendGroup('flood'));
  share();
  output.offer(flood);
  await turns();
  const atOnce = flood.sent;
  assert.ok(atOnce >= 512 * KIB && atOnce <= 576 * KIB, `${atOnce} bytes`);

  checkpoints.splice(0, 4).forEach((read) => void read());
  await turns();
  const later = flood.sent - atOnce;
  assert.ok(later >= 192 * KIB && later <= 320 * KIB, `${later} bytes after half of the checkpoints were read`);
});

test('a quiet group is next once the other side has read something', async () => {
  const { output, checkpoints, endless, share } = busy();
  const [flood, quiet] = [endless(new SendGroup('flood')), endless(new SendGroup('quiet'))];
  share();
  output.offer(flood);
  await turns();
  const before = flood.sent;
  output.offer(quiet);
  (checkpoints.shift() as () => void)();
  await turns();
  assert.ok(quiet.sent > 0);
  assert.ok(quiet.sent >= flood.sent - before - FRAME.length, `${quiet.sent} and ${flood.sent - before} bytes`);
});

test('a long path has as much in flight as it holds', async () => {
  const { output, endless, share } = busy({ rtt: 4 });
  const flood = endless(new SendGroup('flood'));
  share();
  output.offer(flood);
  await turns();
  assert.ok(flood.sent >= 1152 * KIB && flood.sent <= 1216 * KIB, `${flood.sent} bytes`);
});

test('one group alone has no bound of its own, and sends no checkpoints', async () => {
  const { output, checkpoints, endless } = busy();
  const alone = endless(new SendGroup('alone'));
  output.offer(alone);
  await turns();
  assert.ok(alone.sent > TURNS * 32 * KIB, `${alone.sent} bytes`);
  assert.deepEqual(checkpoints, []);
});

test('checkpoints that are read late say how far the other side has read', () => {
  const inFlight = new InFlight(() => 0);
  assert.equal(inFlight.send(64 * KIB - 1), false);
  assert.equal(inFlight.send(1), true);
  const read = inFlight.checkpoint();
  inFlight.send(448 * KIB);
  assert.equal(inFlight.full, true);
  read();
  assert.equal(inFlight.full, false);
});

test('what was sent without a checkpoint while the path seemed long holds nothing up once it is short', () => {
  let rtt = 100;
  const inFlight = new InFlight(() => rtt);
  assert.equal(inFlight.send(2000 * KIB), false);
  rtt = 0;
  assert.equal(inFlight.full, false);
  assert.equal(inFlight.send(16 * KIB), true, 'a checkpoint follows the next bytes');
  const read = inFlight.checkpoint();
  assert.equal(inFlight.full, true);
  read();
  assert.equal(inFlight.full, false);
});
