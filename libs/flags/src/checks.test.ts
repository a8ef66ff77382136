import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, test } from 'node:test';
import { costsItsLength } from '@isthmus/runtime/testing';
import { backendHub, frontendGateway, isthmusHold, proxyAgent, proxyServer } from './programs.ts';
import { check, commandLines, refuses } from './testing/command-lines.ts';
import { hubSocket } from './topics/plane.ts';

const lines = await commandLines();
const { dir, ca, callersCa, adminCa, one, other, uds, cluster, callers, peers, redis } = lines;
const { server, gateway, hub, agent } = lines;
after(() => rmSync(dir, { recursive: true }));

test('command lines in use today are accepted without a warning', () => {
  assert.deepEqual(server(), []);
  assert.deepEqual(gateway(), []);
  assert.deepEqual(gateway(...callers(), '--server-port=8090'), []);
  assert.deepEqual(hub(), []);
  assert.deepEqual(agent(), []);
  assert.deepEqual(agent('--proxy-server-host=example.org', `--agent-cert=${one.cert}`, `--agent-key=${one.key}`), []);
  assert.deepEqual(server('--logtostderr=true', '--mode=grpc', '--proxy-strategies=destHost,default'), []);
});

test('what a gateway dials itself is a list of destinations, and of the names that lift an exception', () => {
  assert.deepEqual(gateway('--direct-destinations=10.0.0.0/8:443,*.svc,[fd00::/8]:1-2,loopback,metadata'), []);
  refuses(gateway, [
    ['--direct-destinations=lopback', /^--direct-destinations: unknown name "lopback": want loopback, own-ports, /],
    ['--direct-destinations=10.0.0.1/8', /^--direct-destinations: bad entry "10\.0\.0\.1\/8": /],
    ['--direct-destinations=a.example:0', /^--direct-destinations: bad entry .* no port/],
  ]);
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
  // The file's content is read later: here it need only be readable.
  const byToken = (...args: string[]) => check(proxyServer, ...cluster(), `--caller-token-file=${ca}`, ...args);
  assert.deepEqual(byToken(`--server-cert=${one.cert}`, `--server-key=${one.key}`), [], 'callers need no certificate');
  refuses(byToken, [
    [`--uds-name=${dir}/s --server-port=0`, '--caller-token-file: has no effect while --server-port is 0'],
    [`--caller-token-file=${dir}/none`, `--caller-token-file: cannot read ${dir}/none: there is no such file`],
  ]);
});

test('isthmus hold takes callers at a port by their certificates alone', () => {
  const hold = (...args: string[]) =>
    check(isthmusHold, '--gateways=/run/k/server.sock', '--server-port=8090', ...args);
  const keyPair = `--server-cert=${one.cert} --server-key=${one.key}`;
  assert.deepEqual(hold(...callers()), []);
  refuses(hold, [
    [keyPair, '--server-ca-cert: must be set: callers connect to --server-port 8090 with mutual TLS'],
    [`${keyPair} --caller-token-file=${ca}`, /^--caller-token-file: unknown flag/],
    [`${keyPair} --server-ca-cert=${callersCa} --direct-destinations=*`, /^--direct-destinations: unknown flag/],
  ]);
});

test('with a directory of tenants, callers and agents come in by what their files name', () => {
  const tenants = (...args: string[]) => check(proxyServer, ...cluster(), `--tenants-dir=${dir}`, ...args);
  refuses(tenants, [
    [
      `--uds-name=${dir}/s --server-port=0`,
      "--uds-name: cannot be combined with --tenants-dir, because it would be of no tenant: name the socket in a tenant's file (callers[].unixSocket)",
    ],
    [
      '--server-port=0 --agent-namespace=kube-system --agent-service-account=agent --authentication-audience=x --kubeconfig=/nowhere',
      "--agent-namespace: cannot be combined with --tenants-dir: a tenant's file says who reviews its agents' tokens (agents[].tokenReview)",
    ],
    ['', /^--server-cert: must be set: .* --server-port=0 to serve only the tenants' own ports and sockets$/],
    [`--caller-token-file=${ca}`, /^--caller-token-file: cannot be combined with --tenants-dir/],
  ]);
  assert.deepEqual(tenants('--server-port=0'), []);
  assert.deepEqual(
    tenants(`--server-cert=${one.cert}`, `--server-key=${one.key}`),
    [],
    "tenants' own CAs verify callers",
  );
  assert.deepEqual(tenants(`--server-cert=${one.cert}`, `--server-key=${one.key}`, '--server-port=0'), []);
});

test("a load balancer's networks are networks", () => {
  for (const program of [server, gateway, hub]) {
    assert.deepEqual(program('--proxy-protocol-networks=10.0.0.0/8,fd00::/8'), []);
    refuses(program, [
      [
        '--proxy-protocol-networks=10.0.0.0/8,10.0.0.1',
        '--proxy-protocol-networks: "10.0.0.1" is no network: want a comma list such as 10.0.0.0/8,fd00::/8',
      ],
      ['--proxy-protocol-networks=10.0.0.0/33', /is no network/],
    ]);
  }
});

test('an agent leads clients to the API server at addresses of one interface each', () => {
  const listen = '--api-server-listen=172.31.0.1:6443';
  assert.deepEqual(agent(`${listen},[fd00::1]:6443`, '--api-server-allow=10.244.0.0/16,fd00::/8'), []);
  refuses(agent, [
    ['--api-server-allow=10.0.0.0/8', '--api-server-allow: has no effect without --api-server-listen'],
    ['--api-server-listen=0.0.0.0:6443', /^--api-server-listen: 0\.0\.0\.0:6443 is no address of one interface/],
    ['--api-server-listen=[::0]:6443', /^--api-server-listen: \[::0\]:6443 is no address of one interface/],
    ['--api-server-listen=[::1]:6443,[0:0::1]:6443', '--api-server-listen: [::1]:6443 is there twice'],
    ['--api-server-listen=node:6443', /^--api-server-listen: node:6443 is no address of one interface/],
    ['--api-server-listen=172.31.0.1', /^--api-server-listen: bad destination/],
    [`${listen},172.31.0.1:6443`, '--api-server-listen: 172.31.0.1:6443 is there twice'],
    [`${listen} --api-server-allow=10.0.0.1`, /^--api-server-allow: "10\.0\.0\.1" is no network/],
  ]);
});

test('an API server has names and addresses, which are not those of the server itself', () => {
  const named = '--api-server-name=api.plane.example';
  for (const program of [server, hub]) {
    assert.deepEqual(program(named, '--api-server=10.0.0.10:6443,[fd00::1]:6443', '--api-server-port=6443'), []);
    assert.deepEqual(program('--api-server=10.0.0.10:6443'), [], 'for agents alone');
    refuses(program, [
      [named, '--api-server: must be set when --api-server-name is'],
      ['--api-server-port=6443', '--api-server-port: has no effect without --api-server-name or --tenants-dir'],
      [`${named} --api-server=10.0.0.10`, /^--api-server: bad destination "10\.0\.0\.10"/],
      [
        '--api-server-name=*.plane.example --api-server=a:1',
        '--api-server-name: "*.plane.example" is a pattern: list each name',
      ],
      ...['127.0.0.1', '127.1', '[::0]', 'LOCALHOST.'].map((host): [string, RegExp] => [
        `${named} --api-server=${host}:8091`,
        /^--api-server: \S+:8091 is the plane itself/,
      ]),
      [
        `${named} --api-server=[fd00:0::1]:443 --advertise-agent-address=[fd00::1]:443`,
        /^--api-server: \[fd00:0::1\]:443 is the plane itself/,
      ],
      [`${named} --api-server=api.plane.example:8091`, /^--api-server: api\.plane\.example:8091 is the plane itself/],
      [`${named} --api-server=169.254.169.254:80`, /^--api-server: 169\.254\.169\.254:80 is denied/],
      [
        `${named} --api-server=10.0.0.10:6443 --advertise-agent-address=api.plane.example:443`,
        /^--api-server-name: api\.plane\.example is a name of the hubs/,
      ],
    ]);
  }
});

test('a gateway has the addresses of an API server, to which it connects for hubs', () => {
  assert.deepEqual(gateway('--api-server=10.0.0.10:6443,[fd00::1]:6443', '--api-server-proxy-protocol'), []);
  refuses(gateway, [
    ['--api-server=10.0.0.10', /^--api-server: bad destination "10\.0\.0\.10"/],
    ['--api-server=127.0.0.1:8092', /^--api-server: 127\.0\.0\.1:8092 is the plane itself/],
    ['--api-server=169.254.169.254:80', /^--api-server: 169\.254\.169\.254:80 is denied/],
  ]);
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
      ['--proxy-server-host=localhost,example.org', /^--ca-cert: must be set to reach example.org/],
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
        /^--admin-server-key: .*: the key does not match/,
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
    ['--redis-url=http://user:hunter2@h', /^--redis-url: bad Redis URL: want redis:[^2]+; rediss for TLS$/],
    ['--redis-url=redis://', /^--redis-url: bad Redis URL: want/],
    ['--redis-url=redis://a,b', /^--redis-url: bad Redis URL: want redis:/],
    ['--redis-url=redis+sentinel://u:hunter2@a,b', /^--redis-url: bad Redis URL: want redis\+sentinel:[^2]+$/],
    ['--redis-url=rediss+cluster://a:1,b:2/1', /^--redis-url: bad Redis URL: want redis\+cluster:/],
    [
      `--redis-url=redis://h --redis-ca-cert=${ca}`,
      '--redis-ca-cert: has no effect unless --redis-url begins with rediss',
    ],
    ['--redis-url=rediss://h --redis-cert=x', '--redis-key: must be set when --redis-cert is'],
    ['--redis-url=rediss://h --redis-ca-cert=/none', '--redis-ca-cert: cannot read /none: there is no such file'],
    ['--plane=a{b}', /^--plane: bad plane name "a\{b\}"/],
    ['--advertise-address=nowhere', /^--advertise-address: bad destination "nowhere": want host:port/],
    ['--advertise-agent-address=[::1]', /^--advertise-agent-address: bad destination/],
    ['--advertise-admin-address=h', /^--advertise-admin-address: bad destination "h": want host:port/],
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

test('gateways and hubs of one machine may share a directory of sockets, unless tenants divide them', () => {
  for (const program of [gateway, hub]) {
    assert.deepEqual(program(`--peer-uds-dir=${dir}`), []);
    refuses(program, [[`--peer-uds-dir=${dir}/none`, `--peer-uds-dir: there is no directory ${dir}/none`]]);
  }
  const both = /^--peer-uds-dir: cannot be combined with --tenants-dir/;
  refuses(hub, [
    [`--peer-uds-dir=${dir} --tenants-dir=${dir}`, both],
    [`--peer-uds-dir=/${'x'.repeat(100)}`, /^--peer-uds-dir: the path has \d+ bytes/],
  ]);
  const shared = ['--server-port=8090', ...callers(), ...redis(), ...peers(), `--tenants-dir=${dir}`];
  refuses((...args) => check(frontendGateway, ...shared, ...args), [[`--peer-uds-dir=${dir}`, both]]);
  refuses(server, [[`--peer-uds-dir=${dir}`, '--peer-uds-dir: has no effect without --redis-url']]);
  const names = ['h:1', 'h:2'].map((address) => hubSocket({ 'peer-uds-dir': '/run/peers', plane: 'p' }, address));
  for (const name of names) assert.match(name, /^\/run\/peers\/[0-9a-f]{16}\.sock$/);
  assert.notEqual(names[0], names[1]);
});

test('invalid values are rejected', () => {
  refuses(server, [
    ['--mode=udp', /^--mode: bad value "udp": want grpc or http-connect/],
    ['--proxy-strategies=', /^--proxy-strategies: must not be empty/],
    ['--proxy-strategies=,', /^--proxy-strategies: must not be empty/],
    ['--proxy-strategies=default,fastest', /^--proxy-strategies: unknown strategy "fastest"/],
    ['--tls-min-version=TLS1.2', /^--tls-min-version: unknown version "TLS1.2"/],
    ['--tls-min-version=constructor', /^--tls-min-version: unknown version "constructor"/],
    ['--cipher-suites=constructor', /^--cipher-suites: "constructor" is unknown or insecure/],
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
    ['--agent-id=direct', '--agent-id: bad id "direct": it stands for what gateways dial themselves; choose another'],
    ['--agent-id=a\tb', /^--agent-id: bad id/],
    ['--tenant=a/b', /^--tenant: bad name "a\/b"/],
    ['--lease-label=a=!', /^--lease-label-selector: bad selector "a=!"/],
    ['--proxy-server-host=', '--proxy-server-host: must not be empty'],
    ['--admin-uds-name=/nowhere/admin.sock', '--admin-uds-name: there is no directory /nowhere'],
    ['--ping-interval=500ms', '--ping-interval: want whole seconds, 1s to 5m'],
    ['--ping-interval=301s', '--ping-interval: want whole seconds, 1s to 5m'],
    ['--proxy-server-host=localhost,', '--proxy-server-host: must not be empty'],
    ['--proxy-server-host=localhost,127.0.0.1,LocalHost', '--proxy-server-host: LocalHost is there twice'],
  ]);
  for (const selector of ['', 'a', '!a', 'a=b', 'a==b', 'a!=b', 'a in (b, c)', 'a notin (b),k8s.io/x=y']) {
    assert.deepEqual(agent(`--lease-label-selector=${selector}`), [], selector);
  }
  for (const selector of [' ! a , b = c ', 'a in ( b , c ) ,d>1,e= ', 'a in (),b notin(c)', 'a=,b'])
    assert.deepEqual(agent(`--lease-label-selector=${selector}`), [], selector);
  for (const selector of ['a = = b', 'a ! = b', 'a b', 'ain (b)', 'a in b', 'a in (b', ',', ' '])
    assert.throws(() => agent(`--lease-label-selector=${selector}`), /bad selector/, selector);
});

test('a label selector that is bad at its end is refused at once', () => {
  for (const selector of ['a= ,'.repeat(30), `a in (${' ,'.repeat(30)}`, `a${' '.repeat(20_000)}`])
    costsItsLength(() => assert.throws(() => agent(`--lease-label-selector=${selector}#`), /bad selector/));
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

test('the console is on, off or auto, and links to traces by a URL with the id in it', () => {
  refuses(server, [
    ['--console=true', '--console: bad value "true": want auto, on or off'],
    ['--console-trace-url=javascript:alert({trace_id})', /^--console-trace-url: bad URL .*: want http:/],
    ['--console-trace-url=https://', /^--console-trace-url: bad URL "https:\/\/"/],
    ['--console-trace-url=https://jaeger.example/trace', /has no {trace_id}: put it where the id belongs$/],
  ]);
  server('--console=on', '--console-trace-url=https://jaeger.example/trace/{trace_id}');
});
