import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CertificateAuthority, type IdentityTexts, LOOPBACK, selfSigned } from '@isthmus/certificates';
import { type Result, reportOf } from '@isthmus/findings';
import { adminApi } from '@isthmus/proto/admin';
import { type Certificate, CertificatePool } from '@isthmus/runtime';
import { styleOf } from '../output.ts';
import { checkText, checkView } from './check.ts';
import { checkFiles, type Demands, judged } from './check-files.ts';
import { checkPorts, checkRedis, checkSocket, judgedRedis } from './check-ports.ts';

describe('check', () => {
  const DAY_MS = 86_400_000;

  let dir: string;
  let authority: CertificateAuthority;
  let server: IdentityTexts;
  let client: IdentityTexts;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-check-'));
    authority = await CertificateAuthority.create('good authority', 100 * DAY_MS);
    server = await authority.issue({ commonName: 'hub', validMs: 90.5 * DAY_MS, hosts: LOOPBACK });
    client = await authority.issue({ commonName: 'node-a', validMs: 90.5 * DAY_MS });
  });
  after(() => rm(dir, { recursive: true, force: true }));

  function judge({ cert }: { cert: string }, demands: Demands, now?: number): Result {
    return judged('it', CertificatePool.of(cert).all as [Certificate], demands, now);
  }

  /** Writes a file with this text and returns its path. */
  function file(name: string, text: string): string {
    const path = join(dir, name);
    writeFileSync(path, text);
    return path;
  }

  describe('a certificate', () => {
    it('passes with its name and its days', () => {
      const { outcome, detail } = judge(server, { use: 'server', hosts: ['localhost', '127.0.0.1', '::1'] });
      assert.equal(outcome, 'pass');
      assert.match(detail, /^CN=hub, valid until \d{4}-\d\d-\d\d \(90 days\)$/);
    });

    it('warns in its last two weeks, and fails before its start and after its end', () => {
      const at = (days: number) => judge(server, { use: 'server' }, Date.now() + days * DAY_MS);
      assert.deepEqual(
        [at(76).outcome, at(77).outcome, at(91).outcome, at(-1).outcome],
        ['pass', 'warn', 'fail', 'fail'],
      );
      assert.match(at(77).detail, /^CN=hub expires on .*, in 13 days$/);
      assert.match(at(90 + 23 / 48).detail, /^CN=hub expires on .*, in (29|30) min \d+ s$/);
      assert.match(at(91).detail, /^CN=hub expired on /);
      assert.match(at(-1).detail, /is not valid before/);
    });

    it('fails for another name, and lists the names that it has', () => {
      const { detail } = judge(server, { use: 'server', hosts: ['hub.example.com', '127.0.0.1'] });
      assert.match(detail, /^CN=hub is not for hub\.example\.com; its names: DNS:localhost, /);
    });

    it('fails under another authority, even one with the same name', async () => {
      const from = (own: CertificateAuthority) => ({
        authorities: CertificatePool.of(own.cert),
        authoritiesFrom: '--ca-cert',
      });
      assert.equal(judge(server, { use: 'server', ...from(authority) }).outcome, 'pass');
      const impostor = await CertificateAuthority.create('good authority', DAY_MS);
      const { outcome, detail } = judge(server, { use: 'server', ...from(impostor) });
      assert.deepEqual(
        [outcome, detail],
        [
          'fail',
          'CN=hub is refused by the programs that get it: it was issued by CN=good authority, which is not a trusted authority here: there is one of that name, but its key did not sign it',
        ],
      );
    });

    it('fails for a purpose that it was not issued for', () => {
      assert.match(judge(client, { use: 'server' }).detail, /cannot be used for serverAuth/);
      assert.equal(judge(client, { use: 'client' }).outcome, 'pass');
    });

    it('is called by its first name where it has no subject', async () => {
      const named = await authority.issue({ commonName: '', validMs: 90.5 * DAY_MS, hosts: LOOPBACK });
      const { outcome, detail } = judge(named, { use: 'server', hosts: ['localhost'] });
      assert.deepEqual([outcome, detail.replace(/,.*/, '')], ['pass', 'DNS:localhost']);
      const alone = await selfSigned('', ['client']);
      const from = { authorities: CertificatePool.of(authority.cert), authoritiesFrom: '--ca-cert' };
      assert.equal(
        judge(alone, { use: 'client', ...from }).detail,
        'DNS:localhost is refused by the programs that get it: it was issued by an authority without a name, which is not a trusted authority here',
      );
    });

    it('fails as an authority if it is none', () => {
      assert.match(judge(client, { use: 'authority' }).detail, /cannot be used for issuing certificates/);
      assert.equal(judge({ cert: authority.cert }, { use: 'authority' }).outcome, 'pass');
    });
  });

  describe('files', () => {
    it('are checked against the authorities that the other side trusts, and keys against their certificates', async () => {
      const other = await CertificateAuthority.create('other', 90 * DAY_MS);
      const paths = {
        clusterCaCert: file('ca.pem', authority.cert),
        agentCert: file('agent.pem', client.cert),
        agentKey: file('agent-key.pem', server.key),
        caCert: file('other.pem', other.cert),
        clusterCert: file('hub.pem', server.cert),
        clusterKey: file('hub-key.pem', server.key),
      };
      const told = checkFiles(paths, []).map(({ about, outcome }) => `${about.split(' ')[0]} ${outcome}`);
      assert.deepEqual(told.sort(), [
        ...['--agent-cert pass', '--agent-key fail', '--ca-cert pass'],
        ...['--cluster-ca-cert pass', '--cluster-cert fail', '--cluster-key pass'],
      ]);
    });

    it('are read as programs read them, whatever stands in front of lines and at their ends', async () => {
      const own = (line: (text: string) => string) =>
        checkFiles(
          { agentCert: file('own.pem', line(server.cert)), agentKey: file('own-key.pem', line(server.key)) },
          [],
        );
      const key = (line: (text: string) => string) => own(line).find(({ about }) => about.startsWith('--agent-key'));
      for (const line of [
        (text: string) => `\ufeff${text}`,
        (text: string) => text.replaceAll('\n', '\r'),
        (text: string) => text.replaceAll(/^/gm, '    '),
      ])
        assert.equal(key(line)?.detail, 'belongs to --agent-cert');
      const small = await selfSigned('small', undefined, 1024);
      assert.match(
        checkFiles({ agentCert: file('small.pem', small.cert) }, [])[0]?.detail ?? '',
        /^cannot be used: certificate 1 of 1 \(CN=small\): its RSA key has 1024 bits: 2048 to 8192 are allowed$/,
      );
      assert.match(key((text) => text.slice(0, 150))?.detail ?? '', /^cannot be used: there is no usable private key/);
    });

    it('fail if they are missing or empty, with what to give', () => {
      const told = (files: object) =>
        checkFiles(files, []).map(({ outcome, about, detail }) => `${outcome} ${about}: ${detail}`);
      const empty = file('empty.pem', '');
      assert.deepEqual(told({ peerCert: empty }), [
        `fail --peer-cert ${empty}: cannot be used: there is no certificate (PEM) in it`,
        'fail --peer-key: the certificate is given without its key',
      ]);
      assert.match(
        told({ caCert: join(dir, 'nowhere.pem') })[0] ?? '',
        /^fail --ca-cert .*cannot be used: there is no such file/,
      );
    });
  });

  describe('the socket of callers', () => {
    const told = async (path: string | undefined) =>
      (await checkSocket(path)).map(({ outcome, detail, todo }) => [outcome, detail, todo].filter(Boolean).join(': '));

    it('passes where a server listens, and is not asked for without a path', async () => {
      const path = join(dir, 'k.socket');
      const listening = createServer().listen(path);
      await once(listening, 'listening');
      assert.deepEqual(await told(path), ['pass: a server listens']);
      listening.close();
      await once(listening, 'close');
      assert.deepEqual(await told(path), ['fail: there is no socket: start the server with this --uds-name']);
      assert.deepEqual(await told(undefined), []);
    });

    it('fails if a server left it, or if its directory is not mounted', async () => {
      const path = join(dir, 'left.socket');
      const left = `import('node:net').then((net) => net.createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL')))`;
      spawnSync(process.execPath, [...(process.versions.deno ? ['eval'] : ['-e']), left]);
      assert.deepEqual(await told(path), [
        'fail: nobody listens: a server that has ended left it: start the server: it replaces the socket',
      ]);
      const elsewhere = join(dir, 'elsewhere');
      assert.deepEqual(await told(join(elsewhere, 'k.socket')), [
        `fail: there is no directory ${elsewhere}: mount the same directory, ${elsewhere}, in the pods of the server and of the API server`,
      ]);
    });
  });

  describe('a port of a hub', () => {
    /** What is said of one that does this with each connection. */
    const probing = {
      timeoutMs: 60_000,
      now: async () => 0,
      announce: async () => {},
      agentPortOf: async (hub: adminApi.Hub) => hub,
      apiServers: async () => new Map(),
    };

    const told = async (serve: (socket: Socket) => void) => {
      await using port = createServer((socket) => serve(socket.resume())).listen(0, '127.0.0.1');
      await once(port, 'listening');
      const peerAddress = `127.0.0.1:${(port.address() as AddressInfo).port}`;
      const hub = adminApi.Hub.fromPartial({ hubId: 'hub-0', peerAddress });
      const [result] = await checkPorts([hub], {}, probing);
      return `${result?.outcome}: ${result?.detail}`;
    };

    it('is without TLS only if it says so: one that hangs up, or refuses, fails', async () => {
      const plain = (socket: Socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n');
      assert.equal(await told(plain), 'warn: it listens, but does not use TLS');
      const none = 'fail: it accepts connections, but the TLS handshake fails: ';
      const wordless = (socket: Socket) => void socket.once('data', () => socket.end());
      assert.ok((await told(wordless)).startsWith(none));
      const alert = (socket: Socket) => void socket.end(Buffer.from([21, 3, 3, 0, 2, 2, 40]));
      assert.match(await told(alert), new RegExp(`^${none}TLS: .*handshake failure`));
    });
  });

  describe('Redis', () => {
    const answered = { server: 'r:6379', version: '7.0.15', role: 'master', maxmemoryPolicy: 'noeviction' };
    const good = { ...answered, roundTripMs: 1, aheadMs: 0, refused: [] };
    const outcomes = (probe: Partial<typeof good> | object) =>
      judgedRedis({ ...good, ...probe }, 'prod').map(({ outcome }) => outcome);

    it('passes if it answers soon, is new enough, is writable and refuses no command', () => {
      assert.deepEqual(outcomes({}), ['pass', 'pass', 'pass']);
    });

    it('warns if it is slow, old or evicts keys, and fails if it is a replica or permissions are missing', () => {
      assert.deepEqual(outcomes({ roundTripMs: 300 }), ['warn', 'pass', 'pass']);
      assert.deepEqual(outcomes({ version: '6.2.1' }), ['pass', 'warn', 'pass']);
      assert.deepEqual(outcomes({ version: '', role: '' }), ['pass', 'pass'], 'of what it may not ask nothing is said');
      assert.deepEqual(outcomes({ maxmemoryPolicy: 'allkeys-lru' }), ['pass', 'pass', 'warn', 'pass']);
      assert.deepEqual(outcomes({ maxmemoryPolicy: 'volatile-ttl' }), ['pass', 'pass', 'warn', 'pass']);
      assert.deepEqual(outcomes({ maxmemoryPolicy: '' }), ['pass', 'pass', 'pass']);
      const readOnly = [{ command: 'SET', reason: 'READONLY' }];
      assert.deepEqual(outcomes({ role: 'slave', refused: readOnly }), ['pass', 'pass', 'fail']);
      const noWrites = { why: 'it cannot save to its disk', reason: 'MISCONF no' };
      const [, , unsaved] = judgedRedis({ ...good, noWrites }, 'prod');
      const detail = 'it takes no writes, because it cannot save to its disk: MISCONF no';
      assert.deepEqual([unsaved?.outcome, unsaved?.detail], ['fail', detail]);
      assert.doesNotMatch(unsaved?.todo ?? '', /ACL/);
      const full = { why: 'its memory is full (maxmemory)', reason: 'OOM command not allowed' };
      assert.deepEqual(outcomes({ noWrites: full }), ['pass', 'pass', 'warn']);
      const refused = ['XADD', 'XADD', 'INFO'].map((command) => ({ command, reason: 'NOPERM' }));
      const last = judgedRedis({ ...good, refused }, 'prod').at(-1);
      assert.deepEqual([last?.outcome, last?.detail], ['fail', 'the user may not run XADD, INFO (NOPERM)']);
      assert.equal(last?.todo, 'ACL SETUSER name ~{prod}:* +xadd +info');
    });

    it('says what to do about it, and nothing of gateways: no plane may use it yet', async () => {
      const redisUrl = 'redis://127.0.0.1:1';
      const wrong = [
        { redisUrl },
        { redisUrl: 'http://r:6379' },
        { redisUrl, redisPasswordFile: join(dir, 'nowhere') },
      ];
      const found = await Promise.all(wrong.map((options) => checkRedis({ plane: 'prod', ...options })));
      const noWrites = { why: 'too few replicas follow it', reason: 'NOREPLICAS' };
      const todos = [...found.flatMap(({ results }) => results), ...judgedRedis({ ...good, noWrites }, 'prod')].flatMap(
        ({ todo = [] }) => todo,
      );
      const wanted = [/^check that it runs/, /^correct the flag/, /^make the file readable/, /^see Redis' log/];
      assert.equal(todos.length, wanted.length);
      for (const [index, todo] of todos.entries()) {
        assert.match(todo, wanted[index] as RegExp);
        assert.doesNotMatch(todo, /gateways dial/);
      }
    });
  });

  describe('the printed check', () => {
    it('has a line for each result, and says what to do below failed ones', () => {
      const results = [
        reportOf('redis').pass('r:6379', 'version 7.0.15'),
        reportOf('certificates').fail('--peer-cert peer.pem', 'CN=hub expired on 2026-01-01', 'renew it'),
      ];
      assert.equal(
        checkText(checkView(results), styleOf(false)),
        [
          'ok    redis         r:6379: version 7.0.15',
          'FAIL  certificates  --peer-cert peer.pem: CN=hub expired on 2026-01-01',
          '                    -> renew it (docs/OPERATE.md#certificates)',
          '',
          '2 checks: 1 passed, 0 warned, 1 failed',
          '',
        ].join('\n'),
      );
    });
  });
});
