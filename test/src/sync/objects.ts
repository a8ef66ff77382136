import { generateKeyPairSync } from 'node:crypto';
import { CertificateAuthority } from '@isthmus/certificates';

const DAY_MS = 86_400_000;

/** A new CA's certificate. */
export async function newCa(name = 'kubernetes'): Promise<string> {
  return (await CertificateAuthority.create(name, DAY_MS)).cert;
}

/** A certificate that is of no authority. */
export async function newLeaf(): Promise<string> {
  const authority = await CertificateAuthority.create('authority', DAY_MS);
  return (await authority.issue({ commonName: 'no authority', validMs: DAY_MS })).cert;
}

/** A new key of an issuer of tokens: the public one. */
export function newKey(): string {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return publicKey.export({ type: 'spki', format: 'pem' }).toString();
}

export function namespaceOf(name: string): object {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name } };
}

export function secretOf(
  namespace: string,
  name: string,
  values: Readonly<Record<string, string>>,
  metadata: object = { labels: { 'isthmus.dev/plane': 'isthmus' } },
): object {
  const data = Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
  );
  return { apiVersion: 'v1', kind: 'Secret', metadata: { namespace, name, ...metadata }, data };
}

export function tenantOf(namespace: string, name: string, spec: object, annotations: object = {}): object {
  return { apiVersion: 'isthmus.dev/v1alpha1', kind: 'Tenant', metadata: { namespace, name, annotations }, spec };
}

/** A tenant with agents of a CA, and the secret with that CA. */
export async function tenantWithCa(namespace: string, name: string, more: object = {}): Promise<[object, object]> {
  const agents = [{ certificates: { ca: { secretRef: { name, key: 'ca.crt' } } } }];
  return [secretOf(namespace, name, { 'ca.crt': await newCa() }), tenantOf(namespace, name, { agents, ...more })];
}

/** What Cluster API has of the cluster `prod` in the namespace `acme`, whose secrets are not there yet but for its kubeconfig. */
export function ofClusterApi(kubeconfig: string): object[] {
  const metadata = (name: string) => ({ namespace: 'acme', name });
  const [apiGroup, kind] = ['infrastructure.cluster.x-k8s.io', 'DockerMachineTemplate'];
  return [
    namespaceOf('acme'),
    {
      ...{ apiVersion: 'cluster.x-k8s.io/v1beta2', kind: 'Cluster', metadata: metadata('prod') },
      spec: { clusterNetwork: { pods: { cidrBlocks: ['10.198.0.0/16'] } } },
    },
    {
      ...{ apiVersion: 'controlplane.cluster.x-k8s.io/v1beta2', kind: 'KubeadmControlPlane' },
      metadata: metadata('prod-control-plane'),
      spec: {
        version: 'v1.34.0',
        machineTemplate: { spec: { infrastructureRef: { apiGroup, kind, name: 'prod' } } },
        kubeadmConfigSpec: { format: 'cloud-config' },
      },
    },
    secretOf('acme', 'prod-kubeconfig', { value: kubeconfig }, {}),
  ];
}

/** A CustomResourceDefinition that takes any field: of kinds whose own is not at hand. */
export function anyDefinition(group: string, kind: string, plural: string, version: string, more: object = {}): object {
  const schema = {
    openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true, ...more },
  };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${plural}.${group}`,
      // What a definition of a group of Kubernetes needs.
      annotations: { 'api-approved.kubernetes.io': 'unapproved, of a test' },
    },
    spec: {
      group,
      scope: 'Namespaced',
      names: { kind, plural, singular: kind.toLowerCase(), listKind: `${kind}List` },
      versions: [{ name: version, served: true, storage: true, schema, subresources: { status: {} } }],
    },
  };
}

const TEXT = { type: 'string' };

/** ClusterProfile, with the fields that are written. */
export function profileDefinition(): object {
  const cluster = {
    type: 'object',
    required: ['server'],
    properties: {
      server: TEXT,
      'certificate-authority-data': { ...TEXT, format: 'byte' },
      'proxy-url': TEXT,
      extensions: {
        type: 'array',
        items: {
          type: 'object',
          properties: { name: TEXT, extension: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
        },
      },
    },
  };
  const accessProviders = {
    type: 'array',
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['name'],
    items: { type: 'object', required: ['name', 'cluster'], properties: { name: TEXT, cluster } },
  };
  const manager = { type: 'object', required: ['name'], properties: { name: TEXT } };
  return anyDefinition('multicluster.x-k8s.io', 'ClusterProfile', 'clusterprofiles', 'v1alpha2', {
    'x-kubernetes-preserve-unknown-fields': undefined,
    properties: {
      spec: { type: 'object', properties: { displayName: TEXT, clusterManager: manager } },
      status: { type: 'object', properties: { accessProviders } },
    },
  });
}
