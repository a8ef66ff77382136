import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, get as getPlain } from 'node:http';
import { get } from 'node:https';
import { connect as connectPlain, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { Authority, type Identity } from '@isthmus/certificates/testing';
import { RUNTIME } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import type { Recent } from './calls/recent.ts';
import type { AdminServer } from './server.ts';
import { aPort, idleBackend, tlsBy } from './testing/backend.ts';
import { type AdminClientTls, adminClient } from './testing/client.ts';

describe('server tls', () => {
  let dir: string;
  let authority: Authority;
  let own: Identity;
  let operator: Identity;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-admin-tls-'));
    authority = await Authority.create(dir, 'operators');
    [own, operator] = [await authority.server(), await authority.client('operator')];
  });
  after(() => rm(dir, { recursive: true }));

  const files = (identity = own) => tlsBy(authority, identity);

  const shows = ({ cert, key }: Identity): AdminClientTls => ({
    ca: readFileSync(authority.cert),
    cert: readFileSync(cert),
    key: readFileSync(key),
  });

  const at = ({ address }: AdminServer) => `127.0.0.1:${address.port}`;

  async function page(server: AdminServer, tls: AdminClientTls): Promise<string> {
    const [response] = await once(get(`https://${at(server)}/metrics`, { ...tls, agent: false }), 'response');
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk;
    return text.trim();
  }

  /** Resolves when a connection has closed, for whatever reason. */
  const closed = (socket: Socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()));

  describe('the admin port with mutual TLS', () => {
    it('serves the RPC and its pages to clients with a certificate, on every address', async () => {
      await using server = await aPort({ host: '0.0.0.0', tls: files() });
      using client = adminClient(at(server), shows(operator));
      assert.deepEqual((await client.admin.listSessions({})).sessions, []);
      assert.equal(await page(server, shows(operator)), 'a page');
      assert.deepEqual((await client.admin.listTunnels({})).tunnels, []);
    });

    it('is accepted by its client under its address or as isthmus-admin, and under no other name', async () => {
      const named = async (value: string) => {
        const identity = await authority.server({ hosts: [{ type: 'dns', value }] });
        await using server = await aPort({ tls: files(identity) });
        using client = adminClient(at(server), shows(operator));
        return await client.admin.listSessions({}, { signal: AbortSignal.timeout(60_000) });
      };
      assert.deepEqual((await named('isthmus-admin')).sessions, []);
      await assert.rejects(named('isthmus-hub'));
    });

    it('lets an operator in while a source floods it with handshakes that do not end, and reports what it drops', async () => {
      const refused: string[] = [];
      const drops = new EventEmitter();
      const flooded = once(drops, 'hundredth', { signal: AbortSignal.timeout(60_000) });
      await using server = await aPort({
        host: '0.0.0.0',
        tls: files(),
        refused: (_, { message }) => {
          if (refused.push(message) === 100) drops.emit('hundredth');
        },
      });
      const flood = Array.from({ length: 150 }, () => {
        const socket = connectPlain({ port: server.address.port, host: '127.0.0.1', localAddress: '127.0.0.9' });
        socket.on('error', () => {}).on('connect', () => socket.write('\x16'));
        return socket;
      });
      try {
        await flooded;
        assert.match(refused[0] ?? '', /^50 connections from 127\.0\.0\.9 are already waiting to be admitted: /);
        assert.equal(await page(server, shows(operator)), 'a page');
      } finally {
        for (const socket of flood) socket.destroy();
      }
    });

    it('begins few handshakes of a source that proves nothing, however often it comes, and those of others at once', async () => {
      using _ = changed(RUNTIME, { handshakeSlots: 4, handshakeSlotMs: 60_000 });
      await using server = await aPort({ host: '0.0.0.0', tls: files() });
      const begin = () => {
        const below = connectPlain({ port: server.address.port, host: '127.0.0.1', localAddress: '127.0.0.9' });
        return connect({ socket: below, ca: shows(own).ca, host: '127.0.0.1' }).on('error', () => {});
      };
      for (let handshake = 0; handshake < 4; handshake++) {
        const stranger = begin();
        await once(stranger, 'secureConnect');
        stranger.destroy();
      }
      const another = begin();
      let begun = false;
      another.on('secureConnect', () => {
        begun = true;
      });
      assert.equal(await page(server, shows(operator)), 'a page');
      assert.equal(begun, false);
      another.destroy();
    });

    it('holds so many connections of one operator, and reports what it drops', async () => {
      const refused: string[] = [];
      const drops = new EventEmitter();
      const dropped = once(drops, 'one', { signal: AbortSignal.timeout(60_000) });
      await using server = await aPort({
        tls: files(),
        refused(_, { message }) {
          refused.push(message);
          drops.emit('one');
        },
      });
      const options = { ...shows(operator), port: server.address.port, host: '127.0.0.1' };
      const open: TLSSocket[] = [];
      // One by one: as many handshakes at once are bounded as well.
      for (let n = 0; n < 50; n++) {
        const socket = connect(options).on('error', () => {});
        open.push(socket);
        await once(socket, 'secureConnect');
      }
      open.push(connect(options).on('error', () => {}));
      await dropped;
      assert.deepEqual(refused, ['50 connections from 127.0.0.1 are open: close some of them']);
      // A place that is left is free.
      open[0]?.destroy();
      const answer = () => page(server, shows(operator)).catch(() => '');
      await until(async () => (await answer()) === 'a page', 'a free place');
      for (const socket of open) socket.destroy();
    });

    it('ends the connections of a certificate that expires or whose tenant is removed, and says why, and no others', {
      skip: 'Deno' in globalThis && 'not shown on Deno',
      timeout: 60_000,
    }, async ({ mock }) => {
      const refusals: string[] = [];
      const gone = new Set<string>();
      const id = 'spiffe://plane.example/tenant/acme/operator/alice';
      const short = await authority.client('short', { validMs: 3_600_000 });
      const alice = await authority.client('alice', { uses: ['client'], hosts: [{ type: 'url', value: id }] });
      const tenants = {
        list: () => [],
        problems: () => [],
        scraped: async () => [],
        unopened: () => [],
        has: (tenant: string) => !gone.has(tenant),
      };
      const watching = idleBackend({ tenants });
      await using server = await aPort({
        tls: files(),
        backend: watching,
        refused: (_, { message }) => refusals.push(message),
      });
      const open = async (identity: Identity) => {
        const socket = connect({ port: server.address.port, host: '127.0.0.1', ...shows(identity) }).on(
          'error',
          () => {},
        );
        await once(socket, 'secureConnect');
        const page = once(socket, 'data', { signal: AbortSignal.timeout(20_000) });
        socket.write('GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n');
        assert.match(String((await page)[0]), /a page/);
        return socket;
      };
      using client = adminClient(at(server), shows(short));
      const watch = async () => {
        for await (const _ of client.admin.watchDials({})) assert.fail('there are no dials');
      };
      const watched = assert.rejects(watch(), /aborted|ECONNRESET/);
      const [stays, expires, removed] = await Promise.all([open(operator), open(short), open(alice)]);
      await until(() => (watching.recent as Recent).watchers === 1, 'the watch');
      const ended = Promise.all([closed(expires), watched]);
      const { now } = Date;
      mock.method(Date, 'now', () => now() + 3_600_000);
      await ended;
      gone.add('acme');
      await closed(removed);
      const end = new Date(new X509Certificate(readFileSync(short.cert)).validTo).toISOString();
      const expired = `the certificate of CN=short expired at ${end} by the clock here: renew it, or set the clock`;
      assert.deepEqual(refusals, [expired, expired, "tenant acme of CN=alice is none of this plane's"]);
      assert.equal(stays.destroyed, false);
      stays.destroy();
    });

    it('speaks HTTP/1.1 with a client that offers both protocols', async () => {
      await using server = await aPort({ tls: files() });
      const { port } = server.address;
      const socket = connect({ port, host: '127.0.0.1', ...shows(operator), ALPNProtocols: ['h2', 'http/1.1'] });
      await once(socket, 'secureConnect');
      assert.equal(socket.alpnProtocol, 'http/1.1');
      socket.destroy();
    });

    it('rejects and reports clients without a certificate, or with one of another authority', {
      timeout: 60_000,
    }, async () => {
      let refusals = 0;
      const all = Promise.withResolvers<void>();
      await using server = await aPort({ tls: files(), refused: () => ++refusals === 6 && all.resolve() });
      const { ca } = shows(operator);
      for (const tls of [
        { ca },
        shows(await authority.foreign('operator')),
        shows(await authority.expired('operator')),
      ]) {
        assert.match(await page(server, tls), /certificate/);
        using client = adminClient(at(server), tls);
        await assert.rejects(client.admin.listSessions({}, { signal: AbortSignal.timeout(60_000) }));
      }
      await all.promise;
    });

    it('closes plain text connections, and those whose handshake does not come', async () => {
      await using server = await aPort({ tls: files(), headTimeoutMs: 50 });
      for (const text of ['GET / HTTP/1.1\r\n\r\n', '']) {
        const socket = connectPlain(server.address.port, '127.0.0.1');
        socket.on('error', () => {});
        socket.write(text);
        socket.resume();
        await closed(socket);
      }
    });

    it('closes while connections are open', async () => {
      const server = await aPort({ tls: files() });
      const idle = connect({ port: server.address.port, host: '127.0.0.1', ...shows(operator) });
      const amid = connectPlain(server.address.port, '127.0.0.1');
      for (const socket of [idle, amid]) socket.on('error', () => {}).resume();
      await Promise.all([once(idle, 'secureConnect'), once(amid, 'connect')]);
      using client = adminClient(at(server), shows(operator));
      await client.admin.listSessions({});
      await Promise.all([server.close(), closed(idle), closed(amid)]);
    });
  });

  describe('the admin port on an address that is not loopback, without TLS', () => {
    it('refuses the RPC and says what to do, and serves its pages', async () => {
      const warnings: string[] = [];
      await using server = await aPort({ host: '0.0.0.0', warn: (message) => warnings.push(message) });
      for (let times = 0; times < 3; times++) {
        using client = adminClient(at(server));
        await assert.rejects(
          client.admin.listSessions({}),
          /PERMISSION_DENIED: questions are answered over mutual TLS, or on a loopback address or unix socket: set --admin-server-cert, .* or --admin-bind-address=127\.0\.0\.1/,
        );
      }
      const [response] = await once(getPlain(`http://${at(server)}/metrics`, { agent: new Agent() }), 'response');
      assert.equal(response.statusCode, 200);
      response.resume();
      await once(response, 'end');
      assert.deepEqual(warnings, [
        `the admin port listens on 0.0.0.0:${server.address.port} without mutual TLS: anyone who can reach it can read metrics, and ` +
          'the admin RPC is rejected. Set --admin-server-cert, --admin-server-key and --admin-ca-cert, or use a loopback address',
      ]);
    });

    it('ends connections of HTTP/2, and says why', async () => {
      const refusals: string[] = [];
      const refused = (_: string, { message }: Error) => refusals.push(message);
      await using server = await aPort({ host: '0.0.0.0', warn() {}, refused });
      const socket = connectPlain(server.address.port, '127.0.0.1');
      socket.on('error', () => {}).resume();
      socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
      await closed(socket);
      assert.match(refusals.join(), /^questions are answered over mutual TLS/);
    });
  });
});
