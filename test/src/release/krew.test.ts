import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse } from 'yaml';

const { krewManifest } = await import(new URL('../../../scripts/lib/release.mjs', import.meta.url).href);

/* What krew's validation asks of a manifest (internal/index/validation/validate.go of kubernetes-sigs/krew). */
test("krew's manifest has what krew validates, and the checksum of what it installs", () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-krew-'));
  try {
    const tarball = join(dir, 'isthmus-1.2.3.tgz');
    writeFileSync(tarball, 'a package');
    const repository = 'https://example.com/isthmus';
    const { apiVersion, kind, metadata, spec } = parse(krewManifest({ tarball, version: '1.2.3', repository }));
    assert.deepEqual([apiVersion, kind], ['krew.googlecontainertools.github.com/v1alpha2', 'Plugin']);
    assert.match(metadata.name, /^[\w-]+$/);
    assert.match(spec.version, /^v\d+\.\d+\.\d+$/);
    assert.ok(
      spec.shortDescription.length > 0 && spec.shortDescription.length <= 50 && !/[\r\n.]/.test(spec.shortDescription),
    );
    assert.equal(new Set(spec.platforms.map((each: object) => JSON.stringify(each))).size, 2);
    for (const { selector, uri, sha256, files, bin } of spec.platforms) {
      assert.ok(['linux', 'darwin'].includes(selector.matchLabels.os));
      assert.equal(uri, `${repository}/releases/download/v1.2.3/isthmus-1.2.3.tgz`);
      assert.equal(sha256, createHash('sha256').update('a package').digest('hex'));
      for (const { from, to } of files) assert.ok(from && to);
      assert.ok(bin && !bin.startsWith('/') && !bin.includes('..'));
    }
  } finally {
    rmSync(dir, { recursive: true });
  }
});
