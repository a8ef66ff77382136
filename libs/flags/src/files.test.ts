import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  constants,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { selfSigned } from '@isthmus/certificates';
import { faultOfSocketPath, hiddenSocket, startedByKubelet } from './files.ts';
import { proxyServer } from './programs.ts';
import { check, commandLines, refuses } from './testing/command-lines.ts';

const { dir, one, other, uds, server, gateway, agent } = await commandLines();
const small = await selfSigned('weak', undefined, 1024);
after(() => rmSync(dir, { recursive: true }));

const file = (name: string, text = '') => {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
};

test('a file that is missing, unreadable or of another kind is named with its flag', () => {
  const none = join(dir, 'none');
  const garbage = file('garbage.pem', 'garbage');
  const broken = file('broken.pem', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n');
  const encrypted = file('encrypted.pem', '-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n');
  const text = (path: string) => readFileSync(path, 'utf8');
  const weak = { cert: file('weak.pem', small.cert), key: file('weak-key.pem', small.key) };
  const above = file('above.pem', text(one.cert) + small.cert);
  const partly = file('partly.pem', text(one.cert) + text(broken) + text(other.cert));
  const damaged = file('damaged.pem', small.cert + text(one.cert) + text(other.cert).slice(0, 200));
  const commented = file('commented.pem', `# ${text(one.cert)}`);
  const base = (...args: string[]) => check(proxyServer, ...uds(), ...args);
  refuses(base, [
    [`--cluster-cert=${one.cert}`, '--cluster-key: must be set when --cluster-cert is'],
    [`--cluster-key=${one.key}`, '--cluster-cert: must be set when --cluster-key is'],
    [`--cluster-cert=${none} --cluster-key=${one.key}`, `--cluster-cert: cannot read ${none}: there is no such file`],
    [`--cluster-cert=${one.cert} --cluster-key=${none}`, `--cluster-key: cannot read ${none}: there is no such file`],
    [`--cluster-cert=${one.cert} --cluster-key=${dir}`, `--cluster-key: cannot read ${dir}: it is a directory`],
    [
      `--cluster-cert=${garbage} --cluster-key=${one.key}`,
      `--cluster-cert: ${garbage}: there is no certificate (PEM) in it`,
    ],
    [
      `--cluster-cert=${broken} --cluster-key=${one.key}`,
      `--cluster-cert: ${broken}: certificate 1 of 1 is malformed: unexpected element of DER`,
    ],
    [
      `--cluster-cert=${one.cert} --cluster-key=${garbage}`,
      `--cluster-key: ${garbage}: there is no usable private key (PEM) in it`,
    ],
    [`--cluster-cert=${one.cert} --cluster-key=${encrypted}`, /^--cluster-key: .*: the key in it is encrypted/],
    [`--cluster-cert=${one.cert} --cluster-key=${other.key}`, /^--cluster-key: .*: the key does not match/],
    [
      `--cluster-cert=${weak.cert} --cluster-key=${weak.key}`,
      `--cluster-cert: ${weak.cert}: certificate 1 of 1 (CN=weak): its RSA key has 1024 bits: 2048 to 8192 are allowed`,
    ],
    [
      `--cluster-cert=${above} --cluster-key=${one.key}`,
      `--cluster-cert: ${above}: certificate 2 of 2 (CN=weak): its RSA key has 1024 bits: 2048 to 8192 are allowed`,
    ],
    [
      `--cluster-ca-cert=${partly}`,
      `--cluster-ca-cert: ${partly}: certificate 2 of 3 is malformed: unexpected element of DER`,
    ],
    [
      `--cluster-ca-cert=${weak.cert}`,
      `--cluster-ca-cert: ${weak.cert}: certificate 1 of 1 (CN=weak): its RSA key has 1024 bits: 2048 to 8192 are allowed`,
    ],
    [`--cluster-ca-cert=${commented}`, `--cluster-ca-cert: ${commented}: there is no certificate (PEM) in it`],
  ]);
  const [own, key] = [file('own.pem', `\ufeff${text(one.cert)}`), file('own-key.pem', `\ufeff${text(one.key)}`)];
  base(`--cluster-cert=${own}`, `--cluster-key=${key}`, `--cluster-ca-cert=${damaged}`);
  refuses(server, [
    [`--cluster-ca-cert=${none}`, `--cluster-ca-cert: cannot read ${none}: there is no such file`],
    [`--cluster-ca-cert=${one.key}`, `--cluster-ca-cert: ${one.key}: there is no certificate (PEM) in it`],
    [`--kubeconfig=${none}`, `--kubeconfig: cannot read ${none}: there is no such file`],
  ]);
  refuses(agent, [
    [`--ca-cert=${none}`, `--ca-cert: cannot read ${none}: there is no such file`],
    [`--service-account-token-path=${none}`, /^--service-account-token-path: cannot read/],
    [`--kubeconfig=${none}`, /^--kubeconfig: cannot read/],
    [`--agent-cert=${one.cert}`, '--agent-key: must be set when --agent-cert is'],
  ]);
});

test('a file that might never end, or is too large, is named with its flag', () => {
  const large = file('large.pem', '-'.repeat(1024 * 1024 + 1));
  const size = 'it has 1048577 bytes: at most 1048576 are allowed';
  refuses(server, [
    ['--cluster-ca-cert=/dev/zero', '--cluster-ca-cert: cannot read /dev/zero: it is not a regular file'],
    [
      `--cluster-cert=/dev/zero --cluster-key=${one.key}`,
      '--cluster-cert: cannot read /dev/zero: it is not a regular file',
    ],
    ['--kubeconfig=/dev/zero', '--kubeconfig: cannot read /dev/zero: it is not a regular file'],
    [`--cluster-ca-cert=${large}`, `--cluster-ca-cert: cannot read ${large}: ${size}`],
  ]);
  refuses(agent, [
    [
      '--service-account-token-path=/dev/zero',
      /^--service-account-token-path: cannot read .*: it is not a regular file/,
    ],
  ]);
});

test('a key that a mounted Secret or ConfigMap lacks is named, with those that it has', () => {
  const secret = join(dir, 'secret');
  mkdirSync(secret);
  const ca = join(secret, 'ca.crt');
  const missing = `--cluster-ca-cert: cannot read ${ca}: there is no such file`;
  refuses(server, [[`--cluster-ca-cert=${ca}`, missing]]);
  mkdirSync(join(secret, '..data'));
  const advice = 'add the key ca.crt to the Secret or ConfigMap';
  refuses(server, [[`--cluster-ca-cert=${ca}`, `${missing}, and what is mounted at ${secret} has nothing: ${advice}`]]);
  for (const key of ['tls.key', 'tls.crt']) writeFileSync(join(secret, key), '');
  const keys = `${missing}, and what is mounted at ${secret} has tls.crt, tls.key: ${advice}`;
  refuses(server, [[`--cluster-ca-cert=${ca}`, keys]]);
  for (let i = 0; i < 12; i++) writeFileSync(join(secret, `k${String(i).padStart(2, '0')}`), '');
  const shown = Array.from({ length: 10 }, (_, i) => `k${String(i).padStart(2, '0')}`).join(', ');
  const some = `${missing}, and what is mounted at ${secret} has ${shown} and 4 more: ${advice}`;
  refuses(server, [[`--cluster-ca-cert=${ca}`, some]]);
});

test('a directory that the kubelet did not write is no Secret, also with a certificate in it', () => {
  const plain = join(dir, 'plain');
  mkdirSync(plain);
  writeFileSync(join(plain, 'tls.crt'), '');
  const ca = join(plain, 'ca.crt');
  refuses(server, [[`--cluster-ca-cert=${ca}`, `--cluster-ca-cert: cannot read ${ca}: there is no such file`]]);
});

test('an unreadable file is rejected', { skip: process.getuid?.() === 0 && 'root may read everything' }, () => {
  const locked = file('locked.pem');
  chmodSync(locked, 0);
  refuses(server, [[`--cluster-ca-cert=${locked}`, `--cluster-ca-cert: cannot read ${locked}: permission denied`]]);
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

test('an audit log that is a pipe is rejected, whether or not somebody reads it', {
  skip: spawnSync('mkfifo', ['--version']).status === 0 ? false : 'there is no mkfifo',
}, () => {
  const pipe = join(dir, 'pipe');
  spawnSync('mkfifo', [pipe]);
  refuses(server, [[`--audit-log=${pipe}`, /^--audit-log: cannot write /]]);
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
  refuses(server, [[`--audit-log=${pipe}`, /^--audit-log: cannot write .*: it is a pipe/]]);
  closeSync(reader);
});

describe('socket path', () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-flags-'));
  after(() => rmSync(dir, { recursive: true }));

  /** Of a container: its own file system, a volume, and one with a space in its name. */
  const MOUNTS = [
    '600 500 0:57 / / ro,relatime - overlay overlay ro,lowerdir=/a',
    '601 600 0:58 / /proc rw,nosuid - proc proc rw',
    '602 600 8:1 /var/k /etc/kubernetes/konnectivity-server rw - ext4 /dev/sda1 rw',
    '603 600 0:61 / /run/with\\040space rw - tmpfs tmpfs rw',
  ].join('\n');

  test("a socket is hidden from other containers if its directory is in the pod's own file system", () => {
    const at = (path: string, mounts = MOUNTS) => hiddenSocket(path, { inPod: true, mounts });
    assert.equal(
      at('/run/konnectivity/k.socket'),
      "the directory /run/konnectivity is in this container's own file system, so no API server finds the socket: mount the directory that the API server mounts",
    );
    assert.ok(at('/etc/kubernetes/konnectivity-server-2/k.socket'));
    for (const path of [
      '/etc/kubernetes/konnectivity-server/k.socket',
      '/run/with space/k.socket',
      '/run/with space/a/b',
    ])
      assert.equal(at(path), undefined, path);
    assert.equal(hiddenSocket('/run/konnectivity/k.socket', { inPod: false, mounts: MOUNTS }), undefined);
    assert.equal(at('/run/k.socket', '25 1 8:1 / / rw - ext4 /dev/sda1 rw'), undefined);
    assert.equal(at('/run/k.socket', ''), undefined);
  });

  test("a kubelet's container is known by the API server's name, and before there is one by the kubelet's files", () => {
    const uid = '0f2a8e3c5d7b9a1c';
    const mounted = (source: string, point: string) =>
      `${MOUNTS}\n604 600 8:1 ${source} ${point} rw - ext4 /dev/sda1 rw`;
    assert.ok(startedByKubelet({ KUBERNETES_SERVICE_HOST: '10.0.0.1' }, MOUNTS));
    assert.ok(startedByKubelet({}, mounted(`/var/lib/kubelet/pods/${uid}/etc-hosts`, '/etc/hosts')));
    // Of a file system that is mounted at the kubelet's directory.
    assert.ok(startedByKubelet({}, mounted(`/pods/${uid}/containers/proxy-server/1a2b`, '/dev/termination-log')));
    assert.ok(!startedByKubelet({}, MOUNTS));
    assert.ok(!startedByKubelet({}, mounted('/var/lib/docker/containers/1a2b/hosts', '/etc/hosts')));
    assert.ok(!startedByKubelet({}, mounted(`/var/lib/kubelet/pods/${uid}/volumes/a`, '/data')));
  });

  test('a directory in which this user may make no socket is named with the user', {
    skip: process.getuid?.() === 0 && 'root may write everywhere',
  }, () => {
    const locked = join(dir, 'locked');
    mkdirSync(locked);
    chmodSync(locked, 0o500);
    assert.equal(
      faultOfSocketPath(join(locked, 'k.socket')),
      `user ${process.getuid?.()} may not make files in the directory ${locked}: chown it to that user`,
    );
  });
});
