import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checkedCertificates, type KubeConnectionSource, messageOf, parseServer } from './connection.ts';
import { readToken } from './kubeconfig.ts';

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Reads what every pod gets: the API server from the environment, and the token and CA of its service account from files. */
export function inClusterConnection(
  env: NodeJS.ProcessEnv = process.env,
  directory: string = SERVICE_ACCOUNT,
): KubeConnectionSource {
  return async () => {
    const host = env.KUBERNETES_SERVICE_HOST;
    const port = env.KUBERNETES_SERVICE_PORT;
    if (!host || !port) {
      throw new Error(
        'no --kubeconfig, and not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set',
      );
    }
    const authority = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
    try {
      const token = await readToken(join(directory, 'token'));
      const path = join(directory, 'ca.crt');
      const ca = checkedCertificates(await readFile(path, 'utf8'), path);
      return { server: parseServer(`https://${authority}`, 'environment'), ca, token, insecureSkipTlsVerify: false };
    } catch (cause) {
      throw new Error(`the pod's service account: ${messageOf(cause)}`, { cause });
    }
  };
}
