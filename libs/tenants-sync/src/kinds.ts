import type { KubeObject } from '@isthmus/kube';

/** On objects: the plane that is to have the cluster as a tenant. On secrets and config maps: the plane whose tenants may name it. */
export const PLANE = 'isthmus.dev/plane';

/** An annotation of secrets and config maps: the namespaces whose tenants may name it, with commas, or `*`. */
export const ALLOW_TENANTS_OF = 'isthmus.dev/allow-tenants-of';

/** An annotation of an object: `now` lets its tenant end without a grace once the object is deleted. */
export const REMOVE = 'isthmus.dev/remove';

/** Where tenants come from beside `Tenant` objects: `--from`. */
export type From = 'cluster-api' | 'kamaji';

/** Where secrets and config maps are known: those with the label of the plane, and secrets of clusters. */
export type Store = 'secret' | 'config map' | From;

/** A file's content in an object's spec. */
export interface Reference {
  readonly secretRef?: Place;
  readonly configMapRef?: Place;
}

interface Place {
  readonly name: string;
  readonly key: string;
  readonly namespace?: string;
}

/** A reference to a secret that belongs to a cluster, and not to what a tenant's owner says. */
export class OwnSecret {
  readonly from: From;
  readonly name: string;
  readonly key: string;

  constructor(from: From, name: string, key: string) {
    this.from = from;
    this.name = name;
    this.key = key;
  }
}

/** An object that becomes a tenant. */
export interface SourceObject extends KubeObject {
  readonly spec?: Readonly<Record<string, unknown>>;
  readonly status?: Readonly<Record<string, unknown>>;
}

export interface ServedKind {
  readonly group: string;
  /** In the order of preference; the first that the API server serves is used. */
  readonly versions: readonly string[];
  readonly plural: string;
}

export const CLUSTER_PROFILE: ServedKind = {
  group: 'multicluster.x-k8s.io',
  versions: ['v1alpha2', 'v1alpha1'],
  plural: 'clusterprofiles',
};

export interface SourceKind extends ServedKind {
  readonly kind: 'Tenant' | 'Cluster' | 'TenantControlPlane';
  /** The tenant that the object alone is: the fields of a tenant's file. */
  fields(object: SourceObject, agents: AgentTokens): Readonly<Record<string, unknown>>;
}

/** A kind of another project. */
interface ClusterKind extends SourceKind {
  /** Its secrets: which they are, and the only values that are kept of them. */
  readonly secrets: { readonly labelSelector: string; readonly keys: readonly string[] };
}

/** Whose tokens agents show, where the cluster's own keys verify them. */
export interface AgentTokens {
  readonly namespace: string;
  readonly serviceAccount: string;
  readonly audience: string;
}

/** What kubeadm's API servers say of themselves in tokens. */
const ISSUER = 'https://kubernetes.default.svc.cluster.local';

/** Common names in the certificates that an API server shows to a gateway: one made for this, and kubeadm's, which it has already. */
const CALLERS = ['kube-apiserver', 'kube-apiserver-kubelet-client'];

function ofControlPlane(ca: OwnSecret, keys: OwnSecret, tokens: AgentTokens): Readonly<Record<string, unknown>> {
  const subject = `system:serviceaccount:${tokens.namespace}:${tokens.serviceAccount}`;
  return {
    agents: [{ tokens: { issuer: ISSUER, audience: tokens.audience, subject, keys } }],
    callers: [{ certificates: { ca, names: CALLERS } }],
  };
}

export const TENANT: SourceKind = {
  kind: 'Tenant',
  group: 'isthmus.dev',
  versions: ['v1alpha1'],
  plural: 'tenants',
  fields: ({ spec = {} }) => spec,
};

/** Cluster API's contract names the secrets: `NAME-ca` and `NAME-sa`, whose `tls.crt` is a certificate, and a public key. */
const CLUSTER: ClusterKind = {
  kind: 'Cluster',
  group: 'cluster.x-k8s.io',
  versions: ['v1beta2', 'v1beta1'],
  plural: 'clusters',
  secrets: { labelSelector: 'cluster.x-k8s.io/cluster-name', keys: ['tls.crt'] },
  fields: ({ metadata: { name } }, agents) =>
    ofControlPlane(
      new OwnSecret('cluster-api', `${name}-ca`, 'tls.crt'),
      new OwnSecret('cluster-api', `${name}-sa`, 'tls.crt'),
      agents,
    ),
};

interface KamajiStatus {
  readonly certificates?: {
    readonly ca?: { readonly secretName?: string };
    readonly sa?: { readonly secretName?: string };
  };
}

/** Kamaji's status names the secrets, which are `NAME-ca` and `NAME-sa-certificate`. */
const TENANT_CONTROL_PLANE: ClusterKind = {
  kind: 'TenantControlPlane',
  group: 'kamaji.clastix.io',
  versions: ['v1alpha1'],
  plural: 'tenantcontrolplanes',
  secrets: { labelSelector: 'kamaji.clastix.io/name', keys: ['ca.crt', 'sa.pub'] },
  fields({ metadata: { name }, status }, agents) {
    const { ca, sa } = (status as KamajiStatus | undefined)?.certificates ?? {};
    return ofControlPlane(
      new OwnSecret('kamaji', ca?.secretName ?? `${name}-ca`, 'ca.crt'),
      new OwnSecret('kamaji', sa?.secretName ?? `${name}-sa-certificate`, 'sa.pub'),
      agents,
    );
  },
};

export const FROM: Readonly<Record<From, ClusterKind>> = { 'cluster-api': CLUSTER, kamaji: TENANT_CONTROL_PLANE };

/** An object that becomes a tenant. */
export interface SourceName {
  readonly kind: SourceKind['kind'];
  readonly namespace: string;
  readonly name: string;
}

/** What is kept of it. */
export interface Source extends SourceName {
  /** When it was created, in milliseconds. */
  readonly created: number;
  readonly generation: number;
  readonly uid?: string;
  /** Whether its end needs no grace. */
  readonly atOnce: boolean;
  /** What it says of a tenant, in JSON if it says that itself: a text takes a third of what is in it. */
  readonly fields: Readonly<Record<string, unknown>> | string;
  /** Why its fields are not kept, if they are not. */
  readonly unkept?: string;
}

/** @returns undefined for an object that is not of this plane. `Tenant` objects without the label are of every plane that sees them */
export function sourceKeeper(
  kind: SourceKind,
  plane: string,
  agents: AgentTokens,
): (object: SourceObject) => Source | undefined {
  return (object) => {
    const { name, namespace = '', labels, annotations, creationTimestamp = '', generation = 0, uid } = object.metadata;
    const asked = labels?.[PLANE] ?? annotations?.[PLANE] ?? (kind === TENANT ? plane : undefined);
    if (asked !== plane) return undefined;
    return {
      ...{ kind: kind.kind, namespace, name, generation, ...(uid !== undefined && { uid }) },
      created: Date.parse(creationTimestamp) || 0,
      atOnce: annotations?.[REMOVE] === 'now',
      fields: kind.fields(object, agents),
    };
  };
}
