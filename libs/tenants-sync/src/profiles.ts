import { newPassword } from '@isthmus/admission';
import { type KubeClient, KubeStatusError } from '@isthmus/kube';
import type { Profile } from './compose.ts';
import { SYNC } from './defaults.ts';
import { CLUSTER_PROFILE, PLANE } from './kinds.ts';
import { MANAGER } from './status.ts';
import type { Verdict } from './sync.ts';
import { servedVersion } from './watching.ts';

export interface ProfileOptions {
  readonly client: KubeClient;
  readonly plane: string;
  /** Where callers reach gateways, and the CA of these; empty if the system's are enough. */
  readonly proxy: { readonly url: string; ca(): string };
  readonly failed: (error: Error) => void;
}

/** The API server, as an agent finds it. Its certificate always has this name. */
const API_SERVER = 'https://kubernetes.default.svc';

/** Writes a ClusterProfile for each `Tenant` that asks for one (KEP-4322), and the secret with its token, which stays as it is once it is there. */
export class ProfileWriter {
  readonly #options: ProfileOptions;
  /** By object: what was written, and when. */
  readonly #written = new Map<string, { readonly text: string; readonly at: number }>();

  constructor(options: ProfileOptions) {
    this.#options = options;
  }

  async write(verdicts: Iterable<Verdict>, now: number, signal: AbortSignal): Promise<void> {
    const { client, failed } = this.#options;
    let version: string | undefined;
    for (const { source, tenant, profile, fault } of verdicts) {
      if (!profile || fault !== undefined || source.kind !== 'Tenant' || signal.aborted) continue;
      const name = `${source.namespace}/${source.name}`;
      const text = JSON.stringify(profile);
      const before = this.#written.get(name);
      if (before?.text === text && now - before.at < SYNC.profileMs) continue;
      try {
        version ??= await servedVersion(client, CLUSTER_PROFILE, signal);
        if (version === undefined)
          throw new Error(`the API server has no ${CLUSTER_PROFILE.plural}.${CLUSTER_PROFILE.group}`);
        if (profile.token === undefined) await this.#makeSecret(source, tenant, profile, signal);
        else {
          await this.#publish(source, tenant, profile, version, signal);
          this.#written.set(name, { text, at: now });
        }
      } catch (error) {
        failed(new Error(`${name}: ${(error as Error).message}`, { cause: error }));
      }
    }
  }

  async #makeSecret(source: Verdict['source'], tenant: string, profile: Profile, signal: AbortSignal): Promise<void> {
    const { client, plane } = this.#options;
    const { token } = newPassword();
    const url = this.#proxyUrl(profile);
    [url.username, url.password] = [tenant, token];
    const { namespace } = source;
    const metadata = { name: profile.secret, labels: { [PLANE]: plane }, ...owned(source) };
    const data = { token, 'proxy-url': url.href.replace(/\/$/, '') };
    const body = { apiVersion: 'v1', kind: 'Secret', metadata, stringData: data };
    const path = `/api/v1/namespaces/${namespace}/secrets`;
    await client.request({ method: 'POST', path, body, signal }).catch((error: unknown) => {
      if (!exists(error)) throw error;
      throw new Error(`secret ${profile.secret} has no token, or no label ${PLANE}: ${plane}`);
    });
  }

  async #publish(
    source: Verdict['source'],
    tenant: string,
    profile: Profile,
    version: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { client, plane, proxy } = this.#options;
    const { namespace, name } = source;
    const manager = `isthmus-${plane}`;
    const object = { apiVersion: `${CLUSTER_PROFILE.group}/${version}`, kind: 'ClusterProfile' };
    const labels = { 'x-k8s.io/cluster-manager': manager };
    const body = {
      ...object,
      metadata: { name, namespace, labels, ...owned(source) },
      spec: { displayName: tenant, clusterManager: { name: manager } },
    };
    const path = `/apis/${CLUSTER_PROFILE.group}/${version}/namespaces/${namespace}/${CLUSTER_PROFILE.plural}`;
    // One that another manager has made only gets a further way in.
    await client.request({ method: 'POST', path, body, signal }).catch((error: unknown) => {
      if (!exists(error)) throw error;
    });
    const cluster = {
      server: API_SERVER,
      // client-go has one bundle for the proxy and for what is behind it.
      'certificate-authority-data': Buffer.from(`${profile.ca.trimEnd()}\n${proxy.ca()}`, 'latin1').toString('base64'),
      'proxy-url': this.#proxyUrl(profile).origin,
      extensions: [
        {
          name: 'client.authentication.k8s.io/exec',
          extension: { clusterName: name, proxySecret: profile.secret },
        },
      ],
    };
    const status = { accessProviders: [{ name: 'isthmus', cluster }] };
    await client.request({
      ...{ method: 'PATCH', path: `${path}/${name}/status`, query: { fieldManager: MANAGER }, signal },
      body: { ...object, metadata: { name, namespace }, status },
    });
  }

  #proxyUrl({ serverName }: Profile): URL {
    const url = new URL(this.#options.proxy.url);
    if (serverName !== undefined) url.hostname = serverName;
    return url;
  }
}

/** What is made for a `Tenant` goes with it. */
function owned({ name, uid }: Verdict['source']): object {
  const owner = { apiVersion: 'isthmus.dev/v1alpha1', kind: 'Tenant', name, uid };
  return uid === undefined ? {} : { ownerReferences: [owner] };
}

function exists(error: unknown): boolean {
  return error instanceof KubeStatusError && error.status === 409;
}
