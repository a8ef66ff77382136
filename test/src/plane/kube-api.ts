import { writeFile } from 'node:fs/promises';
import { FakeApiServer } from '@isthmus/kube/testing';
import { stringify } from 'yaml';
import type { Scope, Trust } from '../harness/index.ts';

/** The audience of agents' tokens. */
export const AUDIENCE = 'system:konnectivity-server';

const LABELS = { 'k8s-app': 'konnectivity-server' };

/** Starts an API server that keeps leases and reviews tokens, and writes a kubeconfig for it. */
export async function kubeApi(scope: Scope, { dir }: Trust, credential = 'secret') {
  const api = scope.use(await FakeApiServer.start());
  api.token = credential;
  const { server, token } = api.connection;
  const kubeconfig = `${dir}/kubeconfig`;
  const ca = Buffer.from(api.identity.cert).toString('base64');
  const config = {
    'current-context': 'test',
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    clusters: [{ name: 'test', cluster: { server: server.href, 'certificate-authority-data': ca } }],
    users: [{ name: 'test', user: { token } }],
  };
  await writeFile(kubeconfig, stringify(config), { mode: 0o600 });
  return {
    kubeconfig,
    api,
    /** Makes a token valid for a service account, `namespace:name`. */
    trust(token: string, account: string) {
      const user = { username: `system:serviceaccount:${account}` };
      api.reviews.set(token, { authenticated: true, audiences: [AUDIENCE], user });
    },
    /** Adds a server's lease that was renewed `age` seconds ago. */
    put(name: string, age: number) {
      const renewTime = new Date(Date.now() - age * 1000).toISOString();
      const metadata = { name, namespace: 'kube-system', labels: LABELS };
      api.put({ metadata, spec: { holderIdentity: name, leaseDurationSeconds: 30, renewTime } });
    },
  };
}
