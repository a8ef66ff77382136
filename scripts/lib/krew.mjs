import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

/**
 * Returns the manifest by which krew installs `kubectl isthmus`: the npm package of all programs, from the release of the repository.
 * @param tarball the package's path
 * @param repository the address of the repository
 */
export function krewManifest({ tarball, version, repository }) {
  const platform = (os) => ({
    selector: { matchLabels: { os } },
    uri: `${repository}/releases/download/v${version}/${basename(tarball)}`,
    sha256: createHash('sha256').update(readFileSync(tarball)).digest('hex'),
    files: [{ from: 'package/*', to: '.' }],
    bin: 'bin/isthmus.js',
  });
  // JSON is YAML.
  const manifest = {
    apiVersion: 'krew.googlecontainertools.github.com/v1alpha2',
    kind: 'Plugin',
    metadata: { name: 'isthmus' },
    spec: {
      version: `v${version}`,
      homepage: repository,
      shortDescription: 'Reach private clusters through a plane',
      description:
        'Writes kubeconfig contexts that lead through the gateways of an Isthmus plane, explains\nwhy one does not get through, and shows and operates the plane.',
      caveats: 'It needs Node 22.18 or newer on the PATH.',
      platforms: ['linux', 'darwin'].map(platform),
    },
  };
  return `${JSON.stringify(manifest, undefined, 2)}\n`;
}
