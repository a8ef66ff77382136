import { isDeepStrictEqual } from 'node:util';
import { newPassword } from '@isthmus/admission';
import { type KubeObject, KubeStatusError, objectName, unlessNotFound } from '@isthmus/kube';
import { inWords } from '@isthmus/tunnel';
import type { Profile } from './compose.ts';
import { SYNC } from './defaults.ts';
import { CLUSTER_PROFILE, PLANE, type Source } from './kinds.ts';
import { type Access, isPublished, MANAGER, type StatusOptions } from './status.ts';
import type { Verdict } from './sync.ts';
import { NotServed, servedVersion } from './watching.ts';

export interface ProfileOptions extends Pick<StatusOptions, 'client' | 'known' | 'leads'> {
  readonly plane: string;
  /** Where callers reach gateways, empty if nobody has said so, and the CA of these; empty if the system's are enough. */
  readonly proxy: { readonly url: string; ca(): string };
  /** Called with what is wrong with an object's ClusterProfile, and without an error once nothing is. */
  readonly failed: (name: string, error?: Error) => void;
}

/** The API server, as an agent finds it. Its certificate always has this name. */
const API_SERVER = 'https://kubernetes.default.svc';

/** The name of our access provider. */
const OWN = 'isthmus';

interface Done {
  readonly access: Access;
  /** What was published, and when. */
  readonly text?: string;
  readonly at: number;
}

interface ProfileObject extends KubeObject {
  readonly metadata: KubeObject['metadata'] & { readonly ownerReferences?: readonly { readonly uid: string }[] };
  readonly status?: { readonly accessProviders?: readonly { readonly name: string }[] };
}

/**
 * Writes a ClusterProfile for each `Tenant` that asks for one (KEP-4322), and once the secret with its token. Takes back what it wrote for one
 * that asks no longer. A change of a ClusterProfile names the version that was read, so a late one, of a sync that no longer leads, does nothing
 * once another has written. A ClusterProfile that was made late is removed. A secret that was made late stays: no gateway takes its token unless
 * the `Tenant` asks, and then it is the one that is published.
 */
export class ProfileWriter {
  readonly #options: ProfileOptions;
  #done = new Map<string, Done>();

  constructor(options: ProfileOptions) {
    this.#options = options;
  }

  /** What became of an object's ClusterProfile; undefined if that is not known. */
  access(name: string): Access | undefined {
    return this.#done.get(name)?.access;
  }

  async write(verdicts: Iterable<Verdict>, now: number, signal: AbortSignal): Promise<void> {
    const { client, failed, known, leads } = this.#options;
    const done = new Map<string, Done>();
    let served: Promise<string | undefined> | undefined;
    const all = [...verdicts];
    const lookMs = Math.max(SYNC.profileMs, all.filter(({ profile }) => profile).length * SYNC.profileLookMs);
    for (const verdict of all) {
      const name = objectName({ metadata: verdict.source });
      const before = this.#done.get(name);
      const asks = verdict.profile !== undefined;
      const told = known(name);
      if (verdict.source.kind !== 'Tenant' || !told || (!asks && !isPublished(told.status))) continue;
      const text = JSON.stringify(verdict.profile);
      const stands = verdict.fault !== undefined || (asks && before?.text === text && now - before.at < lookMs);
      if (stands || signal.aborted || !leads()) {
        if (before) done.set(name, before);
        continue;
      }
      served ??= servedVersion(client, CLUSTER_PROFILE, signal);
      const version = await served;
      try {
        const access = await this.#write(verdict, version, signal).catch(unlessOvertaken);
        // Those that were written at the same time are not all looked at at the same time.
        const at = before?.text === text ? now : now - Math.random() * lookMs;
        if (access) done.set(name, { access, at, ...(access === 'published' && { text }) });
        else if (before) done.set(name, before);
        if (access) failed(name);
      } catch (error) {
        const fault = inWords(error).slice(0, SYNC.faultCharacters);
        done.set(name, { access: { fault }, at: now });
        failed(name, error as Error);
      }
    }
    this.#done = done;
  }

  /** @param version of ClusterProfiles; undefined if the API server has none. @returns undefined if what it needs is being made */
  async #write(verdict: Verdict, version: string | undefined, signal: AbortSignal): Promise<Access | undefined> {
    const { source, tenant, profile } = verdict;
    if (!profile) {
      if (version !== undefined) await this.#takeBack(source, version, signal);
      return 'none';
    }
    if (this.#options.proxy.url === '') throw new Error('the sync has no --proxy-url');
    if (version === undefined) throw new NotServed(CLUSTER_PROFILE);
    if (profile.token !== undefined) return this.#publish(source, tenant, profile, version, signal);
    await this.#makeSecret(source, tenant, profile, signal);
    return undefined;
  }

  async #makeSecret(source: Source, tenant: string, profile: Profile, signal: AbortSignal): Promise<void> {
    const { client, plane } = this.#options;
    const { token } = newPassword();
    const url = this.#proxyUrl(profile);
    [url.username, url.password] = [tenant, token];
    const { namespace } = source;
    const metadata = { name: profile.secret, labels: { [PLANE]: plane }, ...owned(source) };
    const data = { token, 'proxy-url': url.href.replace(/\/$/, '') };
    const body = { apiVersion: 'v1', kind: 'Secret', metadata, stringData: data };
    const path = `/api/v1/namespaces/${namespace}/secrets`;
    const made = await client.request<object>({ method: 'POST', path, body, signal }).catch(unlessOvertaken);
    if (!made) throw new Error(`secret ${profile.secret} has no token, or no label ${PLANE}: ${plane}`);
  }

  async #publish(
    source: Source,
    tenant: string,
    profile: Profile,
    version: string,
    signal: AbortSignal,
  ): Promise<Access | undefined> {
    const { client, plane, proxy, leads } = this.#options;
    const { namespace, name } = source;
    const manager = `isthmus-${plane}`;
    const object = objectOf(version);
    const labels = { 'x-k8s.io/cluster-manager': manager };
    const body = {
      ...object,
      metadata: { name, namespace, labels, ...owned(source) },
      spec: { displayName: tenant, clusterManager: { name: manager } },
    };
    const path = pathOf(source, version);
    // One that another manager has made only gets a further way in.
    let found = await this.#find(source, version, signal);
    if (!leads()) return undefined;
    if (!found) {
      found = await client.request<ProfileObject>({ method: 'POST', path, body, signal });
      // No version holds back a late one, and the sync that leads now may have taken it back before.
      if (!leads()) return this.#remove(source, version, found, signal);
    }
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
    const own = { name: OWN, cluster };
    const stands = found.status?.accessProviders?.some((each) => isDeepStrictEqual(each, own));
    if (!stands) await this.#provide(source, version, found, [own], signal);
    return 'published';
  }

  #find(source: Source, version: string, signal: AbortSignal): Promise<ProfileObject | undefined> {
    const path = `${pathOf(source, version)}/${source.name}`;
    return this.#options.client.request<ProfileObject>({ method: 'GET', path, signal }).catch(unlessNotFound);
  }

  /** Removes what was made for an object; of a ClusterProfile that another manager has made, the way in that was added. */
  async #takeBack(source: Source, version: string, signal: AbortSignal): Promise<void> {
    const found = await this.#find(source, version, signal);
    if (!found) return;
    const { ownerReferences = [] } = found.metadata;
    if (!ownerReferences.some((owner) => owner.uid === source.uid))
      return this.#provide(source, version, found, [], signal);
    await this.#remove(source, version, found, signal);
  }

  async #remove(source: Source, version: string, { metadata }: ProfileObject, signal: AbortSignal): Promise<undefined> {
    const { uid, resourceVersion } = metadata;
    const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid, resourceVersion } };
    const path = `${pathOf(source, version)}/${source.name}`;
    await this.#options.client.request({ method: 'DELETE', path, body, signal }).catch(unlessNotFound);
  }

  /**
   * Says in a ClusterProfile's status which ways in are ours, whoever has changed them. Those of others stay as they were read. (Server-side apply
   * could not take back an entry of ours that another manager has applied, too: its name would stay.)
   */
  async #provide(
    source: Source,
    version: string,
    { metadata: { resourceVersion }, status }: ProfileObject,
    own: readonly object[],
    signal: AbortSignal,
  ): Promise<void> {
    const others = (status?.accessProviders ?? []).filter(({ name }) => name !== OWN);
    const body = { metadata: { resourceVersion }, status: { accessProviders: [...others, ...own] } };
    const path = `${pathOf(source, version)}/${source.name}/status`;
    await this.#options.client.request({ method: 'MERGE', path, query: { fieldManager: MANAGER }, body, signal });
  }

  #proxyUrl({ serverName }: Profile): URL {
    const url = new URL(this.#options.proxy.url);
    if (serverName !== undefined) url.hostname = serverName;
    return url;
  }
}

function objectOf(version: string): object {
  return { apiVersion: `${CLUSTER_PROFILE.group}/${version}`, kind: 'ClusterProfile' };
}

function pathOf({ namespace }: Source, version: string): string {
  return `/apis/${CLUSTER_PROFILE.group}/${version}/namespaces/${namespace}/${CLUSTER_PROFILE.plural}`;
}

/** What is made for a `Tenant` goes with it. */
function owned({ name, uid }: Source): object {
  const owner = { apiVersion: 'isthmus.dev/v1alpha1', kind: 'Tenant', name, uid };
  return uid === undefined ? {} : { ownerReferences: [owner] };
}

/** Another was first, and the next round knows. */
function unlessOvertaken(error: unknown): undefined {
  if (!(error instanceof KubeStatusError) || error.status !== 409) throw error;
}
