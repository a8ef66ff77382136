import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { Asker } from './asker.ts';
import { Plane } from './plane.ts';

describe('an address that is no admin port', () => {
  /** What is said of a server that answers everything so. */
  const told = async (status: number, body: string) => {
    await using server = createServer((_, response) => response.writeHead(status, { connection: 'close' }).end(body));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { signal } = new AbortController();
    const met = Plane.meet({ addresses: [address], timeoutMs: 10_000, signal });
    return await met.then(
      () => 'it was met',
      ({ message }: Error) => message.replaceAll(address, 'there'),
    );
  };

  const NO_MEMBER = /^no member answers: there: what answers is no member of a plane: is this its admin port\?/;

  it('is not what a member is called that refuses late', async () => {
    const late = '\n{"code":"unavailable","message":"it stops"}\n';
    assert.match(await told(200, late), /^no member answers: there: it stops\./);
  });

  it('is named, whatever it answers', async () => {
    for (const body of [
      ...['hello', '<html></html>', 'null', '5', '[1]', '{"status":"ok"}', '{"answer":{}}', '{"member":5,"answer":[]}'],
      ...['{"member":{"id":"a"},"answer":{}}', '{"member":{"id":5,"roles":[]},"error":{"code":5}}'],
    ])
      assert.match(await told(200, body), NO_MEMBER, body);
    const member = { id: 'a', roles: ['gateway'], address: '', version: '', zone: '' };
    const odd = JSON.stringify({ member, answer: { members: 5 } });
    assert.match(await told(200, odd), /there: its answer cannot be read/);
    assert.match(await told(404, 'not found'), /there: it does not answer for its plane: this is no admin port/);
    for (const body of ['{"code":5}', '{"message":"x"}', 'null'])
      assert.ok((await told(500, body)).includes(`there: ${body}.`), body);
  });

  it('has no clock if its answers have no date', async () => {
    for (const headers of [undefined, { date: 'today' }]) {
      await using server = createServer((_, response) => {
        response.sendDate = false;
        response.writeHead(200, headers).end();
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      using asker = new Asker(`127.0.0.1:${(server.address() as AddressInfo).port}`);
      await assert.rejects(
        asker.clock(AbortSignal.timeout(10_000)),
        /its answer has no date: is this its admin port\?/,
      );
    }
  });
});
