import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Authority, type Identity } from '@isthmus/certificates/testing';
import type { FlagTable } from './flag.ts';
import { parseFlags } from './parse.ts';
import { backendHub, frontendGateway, type ProgramFlags, proxyAgent, proxyServer } from './programs.ts';

const dir = mkdtempSync(join(tmpdir(), 'isthmus-flags-'));
const file = (name: string, text = '') => {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
};
let ca: string;
let callersCa: string;
let adminCa: string;
let one: Identity;
let other: Identity;

before(async () => {
  const authority = await Authority.create(dir, 'test');
  adminCa = (await Authority.create(dir, 'operators')).cert;
  callersCa = (await Authority.create(dir, 'callers')).cert;
  [ca, one, other] = [authority.cert, await authority.server(), await authority.server()];
});
after(() => rmSync(dir, { recursive: true }));

/** Returns the warnings of a valid command line. Throws what is wrong with an invalid one. */
function check<T extends FlagTable>(program: ProgramFlags<T>, ...args: readonly string[]): string[] {
  const { values, warnings } = parseFlags(program.flags, args, {});
  const all = [...warnings];
  program.check(values, (warning) => all.push(warning));
  return all;
}

const uds = () => ['--uds-name', join(dir, 's'), '--server-port=0'];
const cluster = () => [`--cluster-cert=${one.cert}`, `--cluster-key=${one.key}`, `--cluster-ca-cert=${ca}`];
const callers = () => [`--server-cert=${one.cert}`, `--server-key=${one.key}`, `--server-ca-cert=${callersCa}`];
const peers = () => [`--peer-cert=${one.cert}`, `--peer-key=${one.key}`, `--peer-ca-cert=${ca}`];
const redis = () => ['--redis-url=redis://127.0.0.1:6379'];
const server = (...args: string[]) => check(proxyServer, ...uds(), ...cluster(), ...args);
const gateway = (...args: string[]) => check(frontendGateway, ...uds(), ...redis(), ...peers(), ...args);
const hub = (...args: string[]) =>
  check(backendHub, ...cluster(), ...peers(), ...redis(), '--advertise-address=10.0.0.1:8097', ...args);
const agent = (...args: string[]) => check(proxyAgent, `--ca-cert=${ca}`, ...args);

/** Runs each line and compares the error. */
function refuses(program: (...args: string[]) => string[], rows: readonly [string, string | RegExp][]): void {
  for (const [line, message] of rows) {
    assert.throws(() => program(...line.split(' ').filter(Boolean)), { name: 'FlagError', message }, line);
  }
}

test('command lines in use today are accepted without a warning', () => {
  assert.deepEqual(server(), []);
  assert.deepEqual(gateway(), []);
  assert.deepEqual(gateway(...callers(), '--server-port=8090'), []);
  assert.deepEqual(hub(), []);
  assert.deepEqual(agent(), []);
  assert.deepEqual(agent('--proxy-server-host=example.org', `--agent-cert=${one.cert}`, `--agent-key=${one.key}`), []);
  assert.deepEqual(server('--logtostderr=true', '--mode=grpc', '--proxy-strategies=destHost,default'), []);
});

test('callers need a unix socket or mutual TLS, and may have both', () => {
  refuses(
    (...args) => check(proxyServer, ...cluster(), ...args),
    [
      ['', /^--server-cert: must be set: callers connect to --server-port 8090 with mutual TLS$/],
      ['--server-port=0', /^--uds-name: must be set when --server-port is 0/],
      [`--uds-name=${dir}/s`, /^--server-cert: .*; set --server-port=0 to serve only the unix socket$/],
      [`--uds-name=${dir}/s --server-port=0 --server-cert=x`, '--server-cert: has no effect while --server-port is 0'],
      [`--server-cert=${one.cert} --server-key=${one.key}`, /^--server-ca-cert: must be set/],
      [`--uds-name=${dir}/none/s --server-port=0`, `--uds-name: there is no directory ${dir}/none`],
      [`--uds-name=/${'x'.repeat(107)} --server-port=0`, /^--uds-name: the path has 108 bytes/],
      [`--uds-name=/${'x'.repeat(102)}/s --server-port=0`, /^--uds-name: its directory's path has 103 bytes, .* 101:/],
      // This length is right: only the directory is missing.
      [`--uds-name=/${'x'.repeat(100)}/s --server-port=0`, /^--uds-name: there is no directory/],
      [`--uds-name=/${'x'.repeat(100)}/12345 --server-port=0`, /^--uds-name: there is no directory/],
      [`--uds-name=${ca} --server-port=0`, `--uds-name: ${ca} exists and is not a socket`],
    ],
  );
  assert.deepEqual(check(proxyServer, ...cluster(), ...callers(), `--uds-name=${dir}/s`), []);
});

test("ports stay within upstream's ranges, and no two listeners share one", () => {
  refuses(server, [
    ['--server-port=80', '--server-port: bad port 80: want 1024 to 49151, or 0 for none'],
    ['--agent-port=1023', '--agent-port: bad port 1023: want 1024 to 49151'],
    ['--agent-port=0', '--agent-port: bad port 0: want 1024 to 49151'],
    ['--admin-port=49152', '--admin-port: bad port 49152: want 1024 to 49151'],
    ['--health-port=-1', '--health-port: bad port -1: want 1024 to 49151'],
    ['--health-port=8091', '--health-port: --agent-port uses port 8091 too'],
    ['--admin-port=8092', '--admin-port: --health-port uses port 8092 too'],
  ]);
  assert.deepEqual(server('--admin-port=8092', '--health-bind-address=10.0.0.1'), []);
  assert.deepEqual(server('--peer-port=8091'), [], 'its peer port stays closed while it is alone');
  refuses(hub, [['--peer-port=8091', '--peer-port: --agent-port uses port 8091 too']]);
  refuses(agent, [
    ['--health-server-port=0', '--health-server-port: bad port 0: want 1 to 65535'],
    ['--admin-server-port=65536', '--admin-server-port: bad port 65536: want 1 to 65535'],
    ['--proxy-server-port=0', '--proxy-server-port: bad port 0: want 1 to 65535'],
  ]);
});

test('a file that is missing, unreadable or of another kind is named with its flag', () => {
  const none = join(dir, 'none');
  const garbage = file('garbage.pem', 'garbage');
  const broken = file('broken.pem', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n');
  const encrypted = file('encrypted.pem', '-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n');
  const base = (...args: string[]) => check(proxyServer, ...uds(), ...args);
  refuses(base, [
    [`--cluster-cert=${one.cert}`, '--cluster-key: must be set when --cluster-cert is'],
    [`--cluster-key=${one.key}`, '--cluster-cert: must be set when --cluster-key is'],
    [`--cluster-cert=${none} --cluster-key=${one.key}`, `--cluster-cert: cannot read ${none}: there is no such file`],
    [`--cluster-cert=${one.cert} --cluster-key=${none}`, `--cluster-key: cannot read ${none}: there is no such file`],
    [`--cluster-cert=${one.cert} --cluster-key=${dir}`, `--cluster-key: cannot read ${dir}: it is a directory`],
    [
      `--cluster-cert=${garbage} --cluster-key=${one.key}`,
      `--cluster-cert: there is no certificate (PEM) in ${garbage}`,
    ],
    [`--cluster-cert=${broken} --cluster-key=${one.key}`, /^--cluster-cert: certificate 1 in .* is malformed: [^\n]+$/],
    [`--cluster-cert=${one.cert} --cluster-key=${garbage}`, /^--cluster-key: there is no usable private key \(PEM\)/],
    [`--cluster-cert=${one.cert} --cluster-key=${encrypted}`, /^--cluster-key: the key in .* is encrypted/],
    [`--cluster-cert=${one.cert} --cluster-key=${other.key}`, /^--cluster-key: the key in .* does not match/],
  ]);
  refuses(server, [
    [`--cluster-ca-cert=${none}`, `--cluster-ca-cert: cannot read ${none}: there is no such file`],
    [`--cluster-ca-cert=${one.key}`, `--cluster-ca-cert: there is no certificate (PEM) in ${one.key}`],
    [`--kubeconfig=${none}`, `--kubeconfig: cannot read ${none}: there is no such file`],
  ]);
  refuses(agent, [
    [`--ca-cert=${none}`, `--ca-cert: cannot read ${none}: there is no such file`],
    [`--service-account-token-path=${none}`, /^--service-account-token-path: cannot read/],
    [`--kubeconfig=${none}`, /^--kubeconfig: cannot read/],
    [`--agent-cert=${one.cert}`, '--agent-key: must be set when --agent-cert is'],
  ]);
});

test('an unreadable file is rejected', { skip: process.getuid?.() === 0 && 'root may read everything' }, () => {
  const locked = file('locked.pem');
  chmodSync(locked, 0);
  refuses(server, [[`--cluster-ca-cert=${locked}`, `--cluster-ca-cert: cannot read ${locked}: permission denied`]]);
});

test('agents show certificates or tokens, and token flags are set together', () => {
  const bare = (...args: string[]) =>
    check(backendHub, ...cluster().slice(0, 2), ...peers(), ...redis(), '--advertise-address=h:8097', ...args);
  const token = '--agent-namespace=n --agent-service-account=s --authentication-audience=a';
  assert.deepEqual(bare(...token.split(' ')), []);
  assert.match(bare().join(), /agents are not authenticated/);
  refuses(bare, [
    ['--agent-namespace=n', '--agent-service-account: must be set when --agent-namespace is'],
    ['--agent-service-account=s', '--agent-namespace: must be set when --agent-service-account is'],
    ['--agent-namespace=n --agent-service-account=s', /^--authentication-audience: must be set/],
  ]);
  refuses(server, [[token, /^--cluster-ca-cert: cannot be combined with --agent-namespace/]]);
});

test('plain text is only for loopback addresses', () => {
  const base = (...args: string[]) => check(proxyServer, ...uds(), ...args);
  refuses(base, [['', /^--cluster-cert: must be set, unless --agent-bind-address is a loopback address/]]);
  refuses(base, [['--agent-bind-address=0.0.0.0', /^--cluster-cert: must be set/]]);
  for (const address of ['127.0.0.1', '127.8.8.8', '::1', 'localhost']) {
    assert.equal(base(`--agent-bind-address=${address}`).length, 1, address);
  }
  assert.deepEqual(check(proxyAgent), []);
  refuses(
    (...args) => check(proxyAgent, ...args),
    [
      ['--proxy-server-host=example.org', /^--ca-cert: must be set to reach example.org/],
      [`--agent-cert=${one.cert} --agent-key=${one.key}`, '--ca-cert: must be set when --agent-cert is'],
    ],
  );
});

test('the admin port of every program has mutual TLS or no TLS', () => {
  const own = [`--admin-server-cert=${one.cert}`, `--admin-server-key=${one.key}`];
  for (const program of [server, gateway, hub, agent]) {
    assert.deepEqual(program(...own, `--admin-ca-cert=${adminCa}`), []);
    refuses(program, [
      [own.join(' '), '--admin-ca-cert: must be set when --admin-server-cert is'],
      [`--admin-ca-cert=${adminCa}`, '--admin-server-cert: must be set when --admin-ca-cert is'],
      [`--admin-server-cert=${one.cert}`, '--admin-server-key: must be set when --admin-server-cert is'],
      [
        `--admin-server-cert=${one.cert} --admin-server-key=${other.key}`,
        /^--admin-server-key: the key in .* does not match/,
      ],
      [`${own.join(' ')} --admin-ca-cert=/none`, '--admin-ca-cert: cannot read /none: there is no such file'],
    ]);
  }
});

test('members of a plane need a registry and each other', () => {
  refuses((...args) => check(frontendGateway, ...uds(), ...args), [['', /^--redis-url: must be set: a gateway finds/]]);
  refuses(
    (...args) => check(backendHub, ...cluster(), ...peers(), ...args),
    [
      ['', /^--redis-url: must be set: gateways find/],
      [redis().join(), /^--advertise-address: must be set/],
    ],
  );
  refuses(server, [
    [redis().join(), '--peer-cert: must be set: gateways and hubs connect with mutual TLS'],
    [`${redis()} ${peers().join(' ')}`, /^--advertise-address: must be set/],
    [
      '--redis-url=http://user:hunter2@h',
      '--redis-url: want redis://[user[:password]@]host[:port][/db], with rediss for TLS',
    ],
    ['--redis-url=redis://', /^--redis-url: want/],
    ['--redis-url=redis://a,b', /^--redis-url: want redis:/],
    ['--redis-url=redis+sentinel://u:hunter2@a,b', /^--redis-url: want redis\+sentinel:[^2]+$/],
    ['--redis-url=rediss+cluster://a:1,b:2/1', /^--redis-url: want redis\+cluster:/],
    [
      `--redis-url=redis://h --redis-ca-cert=${ca}`,
      '--redis-ca-cert: has no effect unless --redis-url begins with rediss',
    ],
    ['--redis-url=rediss://h --redis-cert=x', '--redis-key: must be set when --redis-cert is'],
    ['--redis-url=rediss://h --redis-ca-cert=/none', '--redis-ca-cert: cannot read /none: there is no such file'],
    ['--plane=a{b}', /^--plane: bad name "a\{b\}"/],
    ['--advertise-address=nowhere', /^--advertise-address: bad address "nowhere": want host:port/],
    ['--advertise-agent-address=[::1]', /^--advertise-agent-address: bad address/],
    ['--advertise-admin-address=h', /^--advertise-admin-address: bad address "h": want host:port/],
    [`--peer-cert=${one.cert} --peer-key=${one.key}`, '--peer-ca-cert: must be set when --peer-cert is'],
    [`--peer-ca-cert=${ca}`, '--peer-cert: must be set when --peer-ca-cert is'],
  ]);
  assert.deepEqual(hub('--redis-url=rediss://u:p@h:1/2', '--advertise-agent-address=[::1]:8091', '--zone=z'), []);
  for (const url of ['redis+sentinel://a,b:26380,[::1]/main/1?sentinel-password=p', 'rediss+cluster://u:p@a:1,b:2']) {
    assert.deepEqual(hub(`--redis-url=${url}`), [], url);
  }
  const tls = [`--redis-ca-cert=${ca}`, `--redis-cert=${one.cert}`, `--redis-key=${one.key}`];
  assert.deepEqual(gateway('--redis-url=rediss+sentinel://a/b', ...tls), []);
});

test('invalid values are rejected', () => {
  refuses(server, [
    ['--mode=udp', /^--mode: bad value "udp": want grpc or http-connect/],
    ['--proxy-strategies=', /^--proxy-strategies: must not be empty/],
    ['--proxy-strategies=,', /^--proxy-strategies: must not be empty/],
    ['--proxy-strategies=default,fastest', /^--proxy-strategies: unknown strategy "fastest"/],
    ['--tls-min-version=TLS1.2', /^--tls-min-version: unknown version "TLS1.2"/],
    [
      '--cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA',
      /^--cipher-suites: "TLS_RSA_WITH_AES_128_CBC_SHA" is unknown or insecure/,
    ],
    ['--backend-dial-timeout=-1s', '--backend-dial-timeout: bad duration -1s: it must not be negative'],
    ['--graceful-shutdown-timeout=-1s', /^--graceful-shutdown-timeout: bad duration/],
    ['--enable-contention-profiling', '--enable-contention-profiling: needs --enable-profiling'],
    ['--xfr-channel-size=0', '--xfr-channel-size: bad size 0: want 1 or more'],
    ['--lease-label=a', '--lease-label: bad label "a": want key=value'],
    ['--server-count=0', '--server-count: bad number 0: want 1 or more'],
    ['--server-id=', /^--server-id: bad id ""/],
  ]);
  refuses(agent, [
    ['--sync-interval=20s', '--sync-interval: must not be longer than --sync-interval-cap'],
    ['--rebalance-time=-1s', '--rebalance-time: bad duration -1s: it must not be negative'],
    ['--server-count-source=min', /^--server-count-source: bad value "min": want default or max/],
    ['--agent-identifiers=foo=1', /^--agent-identifiers: unknown identifier "foo"/],
    ['--agent-identifiers=host=%zz', '--agent-identifiers: "%zz" is not valid in a URL query'],
    ['--agent-identifiers=host=a;b', '--agent-identifiers: "a;b" is not valid in a URL query'],
    ['--agent-identifiers=constructor=1', /^--agent-identifiers: unknown identifier/],
    ['--agent-id=', /^--agent-id: bad id ""/],
    ['--agent-id=a\tb', /^--agent-id: bad id/],
    ['--tenant=a/b', /^--tenant: bad name "a\/b"/],
    ['--lease-label=a=!', /^--lease-label-selector: bad selector "a=!"/],
    ['--proxy-server-host=', '--proxy-server-host: must not be empty'],
  ]);
  for (const selector of ['', 'a', '!a', 'a=b', 'a==b', 'a!=b', 'a in (b, c)', 'a notin (b),k8s.io/x=y']) {
    assert.deepEqual(agent(`--lease-label-selector=${selector}`), [], selector);
  }
});

test('an authority that signs for two edges is warned of by name', () => {
  const admin = [`--admin-server-cert=${one.cert}`, `--admin-server-key=${one.key}`];
  const warned = (...args: string[]) => check(proxyServer, ...cluster(), ...callers(), ...args);
  assert.deepEqual(warned(), []);
  const [shared] = warned(`--server-ca-cert=${ca}`);
  assert.match(
    shared ?? '',
    /^--cluster-ca-cert and --server-ca-cert share the CA CN=test authority: certificates of agents also work as certificates of callers\./,
  );
  assert.match(warned(...admin, `--admin-ca-cert=${callersCa}`).join(), /^--server-ca-cert and --admin-ca-cert share/);
  assert.equal(warned(...admin, `--admin-ca-cert=${ca}`, `--server-ca-cert=${ca}`).length, 3);
});

test('what upstream takes though it is doubtful is taken with a warning', () => {
  assert.match(server('--tls-min-version=VersionTLS11').join(), /VersionTLS11 accepts versions that are insecure/);
  assert.match(server('--logtostderr=false').join(), /--logtostderr=false has no effect here/);
  assert.deepEqual(agent('--agent-identifiers=ipv4=1.2.3.4&ipv6=::1&host=a&cidr=10.0.0.0/8&default-route=true'), []);
  assert.deepEqual(agent('--agent-identifiers=ipv6=:::::&cidr=10.0.0.0/33'), [
    '--agent-identifiers: ":::::" is not a valid ipv6',
    '--agent-identifiers: "10.0.0.0/33" is not a valid cidr',
  ]);
});

test('an audit log must be a writable file, and is created for its owner and group', () => {
  for (const program of [server, gateway]) {
    refuses(program, [
      [`--audit-log=${dir}/none/audit.log`, /^--audit-log: cannot write .*: there is no such directory$/],
      [`--audit-log=${dir}`, /^--audit-log: cannot write .*: it is a directory$/],
    ]);
    assert.deepEqual(program(`--audit-log=${dir}/audit.log`), []);
    assert.deepEqual(program('--audit-log=-'), []);
  }
  assert.equal(statSync(join(dir, 'audit.log')).mode & 0o137, 0);
});
