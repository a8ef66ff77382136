import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import { test } from 'node:test';
import type { DuplexStream } from '../http2/duplex.ts';
import type { Head } from '../http2/heads.ts';
import { linkPair, readAll, withNodeClient, withNodeServer } from '../http2/testing.ts';

const CONNECT = { ':method': 'CONNECT', ':authority': 'h:1' };

/** Sends back what comes, and ends when the other side does. */
function echo(stream: DuplexStream): void {
  stream.on('error', () => {});
  stream.respond({ ':status': 200 });
  stream.pipe(stream);
}

test('a stream carries a head, an informational head, an answer and bytes both ways, and its two ways end apart', async () => {
  const { client, server } = await linkPair();
  const heads: Head[] = [];
  server.on('stream', async (stream, head) => {
    heads.push(head);
    stream.additionalHeaders({ ':status': 102 });
    const came = await readAll(stream);
    stream.respond({ ':status': 200, 'x-length': came.length });
    stream.end(came.reverse());
  });
  const stream = client.request({ ...CONNECT, 'x-long': 'é'.repeat(5000) });
  const informational = once(stream, 'headers');
  const response = once(stream, 'response');
  const bytes = randomBytes(1_000_000);
  stream.end(bytes);
  assert.equal((await informational)[0][':status'], '102');
  assert.deepEqual({ ...(await response)[0] }, { ':status': '200', 'x-length': '1000000' });
  assert.deepEqual(await readAll(stream), Buffer.from(bytes).reverse());
  assert.deepEqual({ ...heads[0] }, { ...CONNECT, 'x-long': 'é'.repeat(5000) });
  assert.deepEqual([client.open, server.open], [0, 0]);
});

test('two ends that both have much to say on many streams go on', async () => {
  const { client, server } = await linkPair();
  const bytes = randomBytes(1_000_000);
  let whole = 0;
  server.on('stream', async (stream) => {
    stream.respond({ ':status': 200 });
    stream.end(bytes);
    if ((await readAll(stream)).equals(bytes)) whole++;
  });
  const streams = Array.from({ length: 64 }, () => client.request(CONNECT));
  for (const stream of streams) stream.end(bytes);
  for (const came of await Promise.all(streams.map(readAll))) if (came.equals(bytes)) whole++;
  while (server.open > 0) await new Promise(setImmediate);
  assert.equal(whole, 128);
});

test('streams that nobody reads hold their windows and stop no other', async () => {
  const { client, server } = await linkPair();
  server.on('stream', (stream, { 'x-endless': endless }) => {
    if (!endless) return echo(stream);
    stream.on('error', () => {});
    stream.respond({ ':status': 200 });
    const more = () => {
      while (stream.write(Buffer.alloc(16_384)));
    };
    stream.on('drain', more);
    more();
  });
  const stalled = Array.from({ length: 100 }, () => client.request({ ...CONNECT, 'x-endless': '1' }));
  for (const stream of stalled) stream.on('error', () => {});
  const bytes = randomBytes(3_000_000);
  for (let round = 0; round < 3; round++) {
    const stream = client.request(CONNECT);
    stream.end(bytes);
    assert.deepEqual(await readAll(stream), bytes);
  }
  for (const stream of stalled) assert.equal(stream.readableLength, 64 * 1024);
  client.destroy();
});

test('either side resets a stream, and the other sees the code', async () => {
  const { client, server } = await linkPair();
  const opened: DuplexStream[] = [];
  server.on('stream', (stream) => void opened.push(stream.on('error', () => {})));
  const [byClient, byServer] = [client.request(CONNECT), client.request(CONNECT)];
  byServer.on('error', () => {});
  while (opened.length < 2) await new Promise(setImmediate);
  byClient.close();
  await once(opened[0] as DuplexStream, 'close');
  opened[1]?.close(2);
  const [error] = await once(byServer, 'error');
  assert.equal((error as Error).message, 'stream was reset with INTERNAL_ERROR');
  assert.deepEqual([opened[0]?.rstCode, byServer.rstCode, client.open, server.open], [8, 2, 0, 0]);
});

test('an answer that came whole is read, though the other side wants no more of the request', async () => {
  const { client } = await withNodeServer((stream) => {
    stream.respond({ ':status': 200 });
    stream.end('all there is', () => stream.close(http2.constants.NGHTTP2_NO_ERROR));
  });
  const stream = client.request(CONNECT);
  stream.write(Buffer.alloc(1_000_000));
  await once(stream, 'response');
  while (client.open > 0) await new Promise(setImmediate);
  assert.equal(String(await readAll(stream)), 'all there is');
});

test('a link that closes lets its streams finish, takes no new one, and then ends', async () => {
  const { client, server } = await linkPair();
  server.on('stream', echo);
  const stream = client.request(CONNECT);
  await once(stream, 'response');
  const told = once(client, 'goaway');
  server.close();
  await told;
  assert.throws(() => client.request(CONNECT), /link is closing/);
  const ends = [once(client, 'close'), once(server, 'close')];
  stream.end('still here');
  assert.equal(String(await readAll(stream)), 'still here');
  await Promise.all(ends);
  assert.throws(() => client.request(CONNECT));
});

test('a stream that came too late for a GOAWAY is refused, so that it may be tried elsewhere', async () => {
  const { client, server } = await linkPair();
  server.on('stream', echo);
  const early = client.request(CONNECT);
  await once(early, 'response');
  server.close();
  const late = client.request(CONNECT);
  const [error] = await once(late, 'error');
  assert.equal((error as Error).message, 'stream was reset with REFUSED_STREAM');
  early.end();
  await readAll(early);
});

test('the end of a connection is the end of its streams, but not of what came before', async () => {
  const { client, server } = await linkPair();
  server.on('stream', (stream, { 'x-short': short }) => {
    stream.on('error', () => {}).resume();
    stream.respond({ ':status': 200 });
    if (short) stream.end('all of it');
  });
  const whole = client.request({ ...CONNECT, 'x-short': '1' });
  whole.end();
  const cut = client.request(CONNECT);
  while (client.open > 1) await new Promise(setImmediate);
  const failed = once(cut, 'error');
  server.socket.destroy();
  await failed;
  assert.equal(String(await readAll(whole)), 'all of it');
});

test('a client of another make is served: compressed heads, bytes both ways, aborts, PING', async () => {
  const { client, server } = await withNodeClient();
  const heads: Head[] = [];
  server.on('stream', (stream, head) => {
    heads.push(head);
    echo(stream);
  });
  const bytes = randomBytes(2_000_000);
  const fields = { 'x-again': 'and again', 'x-huffman': 'www.example.com/a?b=c&d=~{}' };
  for (let round = 0; round < 3; round++) {
    const stream = client.request({ ...CONNECT, ...fields });
    stream.end(bytes);
    assert.deepEqual(await readAll(stream), bytes);
    assert.deepEqual({ ...heads.pop() }, { ...CONNECT, ...fields });
  }
  const aborted = client.request(CONNECT);
  await once(aborted, 'response');
  aborted.on('error', () => {}).close(http2.constants.NGHTTP2_CANCEL);
  while (server.open > 0) await new Promise(setImmediate);
  await new Promise((resolve) => client.ping(resolve));
  client.close();
  await once(server, 'close');
});

test('a server of another make is used: streams, settings, refusals, GOAWAY', async () => {
  const { client } = await withNodeServer((stream, head) => {
    if (head['x-refuse']) return stream.close(http2.constants.NGHTTP2_REFUSED_STREAM);
    stream.respond({ ':status': 200, 'x-agent': 'another' });
    if (head['x-goaway']) stream.session?.close();
    stream.pipe(stream);
  });
  const bytes = randomBytes(2_000_000);
  const stream = client.request(CONNECT);
  stream.end(bytes);
  assert.deepEqual(await readAll(stream), bytes);
  const refused = client.request({ ...CONNECT, 'x-refuse': '1' });
  await once(refused, 'error');
  assert.equal(refused.rstCode, http2.constants.NGHTTP2_REFUSED_STREAM);
  const last = client.request({ ...CONNECT, 'x-goaway': '1' });
  await once(client, 'goaway');
  assert.equal(client.closed, true);
  const closed = once(client, 'close');
  last.end('bye');
  assert.equal(String(await readAll(last)), 'bye');
  await closed;
});

test('a listener of the end that throws is a fault, and keeps neither the others nor the streams from it', async () => {
  const { client, server } = await linkPair();
  const faults: Error[] = [];
  const defect = new Error('a defect');
  client.on('fault', (error) => faults.push(error));
  client.once('close', () => {
    throw defect;
  });
  const stream = client.request(CONNECT).on('error', () => {});
  const ended = once(client, 'close');
  const closed = once(stream, 'close').catch(() => {});
  server.socket.destroy();
  await Promise.all([ended, closed]);
  assert.deepEqual([faults, stream.destroyed], [[defect], true]);
});
