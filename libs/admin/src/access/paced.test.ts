import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connect } from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { ADMIN } from '../defaults.ts';
import { tenantsPort } from '../testing/tenants-port.ts';

describe("tenants' operators at the RPC", () => {
  const idOf = (tenant: string) => `spiffe://plane.example/tenant/${tenant}/operator/alice`;
  let dir: string;
  let authority: Authority;
  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-paced-'));
    authority = await Authority.create(dir, 'operators');
  });
  after(() => rm(dir, { recursive: true }));

  test("a tenant's flood of calls is read as fast as its turns come, beside which others and itself are answered", async () => {
    await using port = await tenantsPort(authority);
    const hosts = [{ type: 'url' as const, value: idOf('acme') }];
    const { cert, key } = await authority.client('mallory', { uses: ['client'], hosts });
    const [ca, own, secret] = await Promise.all([authority.cert, cert, key].map((path) => readFile(path)));
    const since = performance.now();
    let answered = 0;
    const sessions = Array.from({ length: 10 }, () => {
      const socket = connect({
        ...{ port: port.port, host: '127.0.0.1', ca, cert: own, key: secret, ALPNProtocols: ['h2'] },
        checkServerIdentity: () => undefined,
      });
      const session = http2.connect('https://localhost', { createConnection: () => socket }).on('error', () => {});
      for (let n = 0; n < 1_000; n++) {
        const head = {
          ':method': 'POST',
          ':path': `/isthmus.Unknown/${n}`,
          'content-type': 'application/grpc',
          te: 'trailers',
        };
        const stream = session.request(head).on('error', () => {});
        stream.on('response', () => void answered++).resume();
      }
      return session;
    });
    await once(sessions[0] as http2.ClientHttp2Session, 'connect');
    for (const id of [idOf('beta'), idOf('acme')]) {
      using client = await port.client(id);
      for (let n = 0; n < 5; n++) assert.equal((await client.admin.listSessions({})).sessions.length, 1);
    }
    const bytes = (ADMIN.tenantBytesPerSecond * (ADMIN.tenantBurstMs + performance.now() - since)) / 1000;
    for (const session of sessions) session.destroy();
    // With all that HPACK saves, a call has its path, whose digits differ, and the head of a frame.
    assert.ok(answered > 0 && answered < bytes / 13, `${answered} calls of 10,000 were answered for ${bytes} bytes`);
  });

  test('what a tenant sends and gets is whole, and the end comes too', async () => {
    await using port = await tenantsPort(authority);
    using client = await port.client(idOf('acme'));
    const reason = 'x'.repeat(400);
    for (let n = 0; n < 20; n++) {
      const target = { $case: 'agent', value: { tenant: 'acme', agentId: 'edge' } } as const;
      await client.admin.kick({ target, reason: `${reason} ${n}` });
    }
    assert.deepEqual(
      port.operations.map(({ text }) => text?.slice(400)),
      Array.from({ length: 20 }, (_, n) => ` ${n}`),
    );
  });
});
