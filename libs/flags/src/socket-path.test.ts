import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { faultOfSocketPath, hiddenSocket, startedByKubelet } from './socket-path.ts';

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
