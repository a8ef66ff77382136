import { randomBytes } from 'node:crypto';
import { usage } from '../output.ts';
import type { Texts } from './certs-make.ts';

/** What a set of manifests expects in the cluster before it is applied. */
interface Recipe {
  /** Names that the serving certificates have besides those that the operator gives. */
  readonly hosts: readonly string[];
  /** Lines for people at the head of the objects: what cannot be made here. */
  readonly about: readonly string[];
  objects(texts: Texts, names: Names): KubernetesObject[];
}

interface Names {
  /** The caller's common name. */
  readonly caller: string;
  readonly operator: string;
  /** Empty unless the operator named one. */
  readonly tenant: string;
}

interface KubernetesObject {
  readonly kind: 'Secret' | 'ConfigMap';
  readonly namespace: string;
  readonly name: string;
  /** Where it is applied, as its comment says. */
  readonly cluster: string;
  /** Texts by key. */
  readonly data: Readonly<Record<string, string>>;
}

const OF_THE_PLANE = 'the cluster of the plane';
const OF_THE_AGENTS = 'the cluster of the agents';

const PLANE: Recipe = {
  hosts: ['gateway.isthmus-plane.svc', 'hub.isthmus-plane.svc'],
  about: [
    'For k8s/base/plane, k8s/base, k8s/recipes/shared-plane, and the chart as plane.',
    'API servers show kube-apiserver-tls. Not here: hub-kubeconfig (k8s/README.md), which neither k8s/base nor a plane with tenants needs.',
  ],
  objects(texts, names) {
    const own = { cluster: OF_THE_PLANE, namespace: 'isthmus-plane' };
    const servers = {
      'gateway-callers-tls': 'callers-server',
      'gateway-peers-tls': 'peers-gateway',
      'hub-peers-tls': 'peers-hub',
      'hub-agents-tls': 'agents-server',
    };
    const password = randomBytes(32).toString('hex');
    return [
      ...secretsOf(own, servers, texts, names),
      { kind: 'Secret', ...own, name: 'redis-auth', data: { password } },
      authorityOfHubs(texts, OF_THE_AGENTS),
    ];
  },
};

const SERVER: Recipe = {
  hosts: ['server.isthmus-server.svc', 'server-agents.isthmus-server.svc'],
  about: ['For the chart as server.', 'API servers show kube-apiserver-tls. Not here: hub-kubeconfig (k8s/README.md).'],
  objects(texts, names) {
    const own = { cluster: OF_THE_PLANE, namespace: 'isthmus-server' };
    const servers = { 'server-callers-tls': 'callers-server', 'server-agents-tls': 'agents-server' };
    return [...secretsOf(own, servers, texts, names), authorityOfHubs(texts, OF_THE_AGENTS)];
  },
};

const TENANT: Recipe = {
  hosts: [],
  about: [
    "One tenant of k8s/recipes/shared-plane. With `kubectl apply --server-side --field-manager=TENANT`, other tenants' keys in the secret stay.",
    "Before it: kubectl create namespace tenants, where TENANT's API server runs. Not here: TENANT-sa.pub, the cluster's own public key. Agents that trust only their cluster's CA need TENANT.crt and TENANT.key of that CA.",
  ],
  objects(texts, { caller, tenant }) {
    const own = {
      [`${tenant}.crt`]: text(texts, 'agents-server.pem'),
      [`${tenant}.key`]: text(texts, 'agents-server-key.pem'),
      [`${tenant}-callers-ca.crt`]: text(texts, 'callers-ca.pem'),
    };
    const where = { cluster: `the cluster that runs ${tenant}'s API server`, namespace: 'tenants' };
    const plane = { cluster: OF_THE_PLANE, namespace: 'isthmus-plane' };
    return [
      { kind: 'Secret', ...plane, name: 'tenants-credentials', data: own },
      tls({ ...where, name: `${tenant}-callers` }, texts, `callers-${caller}`, 'agents'),
      authorityOfHubs(texts, `${tenant}'s own cluster, of its agents`, 'kube-system'),
    ];
  },
};

const OF_THE_CLUSTER = "the cluster's own CA issues what its server shows, into files on the node";
const OF_ITS_OPERATOR = 'its operator makes them. For a shared plane, use --recipe tenant';

/** Recipes without secrets to make, and why. */
const NOTHING: Readonly<Record<string, string>> = {
  'kubernetes-io': OF_THE_CLUSTER,
  'kubeadm-ha': OF_THE_CLUSTER,
  k0s: OF_THE_CLUSTER,
  kamaji: OF_ITS_OPERATOR,
  hypershift: 'its operator makes them',
  vcluster: OF_ITS_OPERATOR,
};

const RECIPES: Readonly<Record<string, Recipe>> = {
  plane: PLANE,
  'shared-plane': PLANE,
  server: SERVER,
  tenant: TENANT,
};

export const RECIPE_NAMES: readonly string[] = [...Object.keys(RECIPES), ...Object.keys(NOTHING)];

/** @throws Failure if the recipe needs no secrets */
export function recipeOf(name: string): Recipe {
  const recipe = RECIPES[name];
  if (recipe) return recipe;
  throw usage(`${name} needs no secrets: ${NOTHING[name]} (k8s/recipes/${name}/README.md)`);
}

/** Returns YAML for `kubectl apply`. */
export function kubernetesText(recipe: Recipe, texts: Texts, names: Names): string {
  const about = recipe.about.map((line) => `# ${line.replaceAll('TENANT', names.tenant || 'TENANT')}\n`).join('');
  return `${about}\n${recipe.objects(texts, names).map(objectText).join('---\n')}`;
}

type Place = Pick<KubernetesObject, 'cluster' | 'namespace' | 'name'>;

/** Those of a plane's own cluster. @param servers the file of each secret */
function secretsOf(
  place: Omit<Place, 'name'>,
  servers: Readonly<Record<string, string>>,
  texts: Texts,
  { caller, operator }: Names,
): KubernetesObject[] {
  const others = {
    'kube-apiserver-tls': `callers-${caller}`,
    'admin-tls': 'admin-server',
    'operator-tls': `admin-${operator}`,
  };
  // The party that trusts a certificate begins the name of its file.
  return Object.entries({ ...servers, ...others }).map(([name, file]) =>
    tls({ ...place, name }, texts, file, file.replace(/-.*/, '')),
  );
}

function tls(place: Place, texts: Texts, file: string, party: string): KubernetesObject {
  const data = {
    'tls.crt': text(texts, `${file}.pem`),
    'tls.key': text(texts, `${file}-key.pem`),
    'ca.crt': text(texts, `${party}-ca.pem`),
  };
  return { kind: 'Secret', ...place, data };
}

/** What k8s/base/agent mounts as the CA of the hubs' certificate. */
function authorityOfHubs(texts: Texts, cluster: string, namespace = 'isthmus-agent'): KubernetesObject {
  const data = { 'ca.crt': text(texts, 'agents-ca.pem') };
  return { kind: 'ConfigMap', cluster, namespace, name: 'hub-ca', data };
}

function text(texts: Texts, file: string): string {
  const found = texts.get(file);
  if (found === undefined) throw new Error(`no ${file} was made`);
  return found;
}

function objectText({ kind, cluster, namespace, name, data }: KubernetesObject): string {
  const field = kind === 'Secret' ? 'stringData' : 'data';
  const type = 'tls.key' in data ? 'type: kubernetes.io/tls\n' : '';
  const lines = Object.entries(data).map(([key, value]) => {
    if (!value.includes('\n')) return `  ${key}: ${JSON.stringify(value)}\n`;
    const indented = value.trimEnd().replaceAll(/^/gm, '    ');
    return `  ${key}: |\n${indented}\n`;
  });
  return `# For ${cluster}.\napiVersion: v1\nkind: ${kind}\nmetadata:\n  name: ${name}\n  namespace: ${namespace}\n${type}${field}:\n${lines.join('')}`;
}
