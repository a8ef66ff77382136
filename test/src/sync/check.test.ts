import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { SYNC_REPORT } from '@isthmus/admission';
import { CertificateAuthority } from '@isthmus/certificates';
import { scoped, until } from '../harness/index.ts';
import { isthmus } from '../plane/operator.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { anyDefinition, namespaceOf, newCa, newKey, newLeaf, secretOf, tenantOf, tenantWithCa } from './objects.ts';
import { startSyncedPlane } from './synced.ts';

describe('isthmus check of a plane with syncs', { skip: noApiServer }, () => {
  test(
    'finds a Cluster without secrets, CAs that are none or have expired, a sync that is silent, and directories that differ',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      await kube.apply(namespaceOf('acme'), anyDefinition('cluster.x-k8s.io', 'Cluster', 'clusters', 'v1beta2'));
      await kube.established();
      const { gateways, syncs } = await startSyncedPlane(scope, kube, { each: 1, flags: { from: 'cluster-api' } });
      const [gateway] = gateways;
      assert.ok(gateway);
      let said = '';
      const says = (...wanted: readonly RegExp[]) =>
        until(
          async () => {
            said = (await isthmus(gateway.program, 'check', '--no-dials')).out;
            return wanted.every((each) => each.test(said));
          },
          { deadline: 30_000, every: 500, what: () => `${wanted} in ${said}` },
        );

      const cluster = (name: string) => ({
        ...{ apiVersion: 'cluster.x-k8s.io/v1beta2', kind: 'Cluster', spec: {} },
        metadata: { namespace: 'acme', name, labels: { 'isthmus.dev/plane': 'isthmus' } },
      });
      const owned = { labels: { 'cluster.x-k8s.io/cluster-name': 'any' } };
      const secrets = (name: string, ca: string) => [
        secretOf('acme', `${name}-ca`, { 'tls.crt': ca }, owned),
        secretOf('acme', `${name}-sa`, { 'tls.crt': newKey() }, owned),
      ];
      await kube.apply(cluster('waits'), cluster('leaf'), cluster('expired'));
      await kube.apply(...secrets('leaf', await newLeaf()));
      await kube.apply(...secrets('expired', (await CertificateAuthority.create('expired', -1000)).cert));
      await says(
        /FAIL +tenants +Cluster acme\/waits: .*there is no secret acme\/waits-ca yet/,
        /FAIL +tenants +Cluster acme\/leaf: .*is of no certificate authority/,
        /FAIL +tenants +acme-expired: callers\[0\]\.certificates\.ca: .* expired on /,
      );
      assert.match(said, /renew what Cluster acme\/expired names in place/);
      await kube.apply(...secrets('waits', await newCa()), ...secrets('leaf', await newCa()));
      await kube.apply(...secrets('expired', await newCa()));
      await until(
        async () => {
          said = (await isthmus(gateway.program, 'check', '--no-dials')).out;
          return !/FAIL +tenants/.test(said) && /3 in force/.test(said);
        },
        { deadline: 30_000, every: 500, what: () => `no more faults in ${said}` },
      );

      const [ofHub] = syncs;
      assert.ok(ofHub);
      await ofHub.program.kill();
      await kube.apply(...(await tenantWithCa('acme', 'later')));
      await kube.apply(tenantOf('acme', 'waits', { limits: { tunnels: 7 } }));
      const silent = { at: new Date(0).toISOString(), plane: 'isthmus', tenants: 3, faults: [] };
      writeFileSync(join(ofHub.dir, SYNC_REPORT), JSON.stringify(silent));
      await says(
        /WARN +tenants +\S+: does not have tenants that others have: acme-later/,
        /WARN +tenants +\S+: has other files than \S+ of tenants acme-waits/,
        /FAIL +tenants +isthmus tenants sync: it has not written since 1970-01-01T00:00:00/,
      );
    }),
  );
});
