import { COMMAND_LINES, type CommandLine } from '../recipes/command-lines.ts';

/**
 * The pods that operators make of our image, as far as Prometheus' discovery sees them: labels, and the containers' names and ports.
 * Read in the sources of Kamaji (konnectivity_server.go and agent.go, 2026) and HyperShift (the assets of kube-apiserver and
 * konnectivity-agent, and the agents' DaemonSet in reconcile.go, 2026).
 */
export interface DiscoveredPod {
  readonly metadata: {
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: { readonly containers: readonly DiscoveredContainer[] };
}

export interface DiscoveredContainer {
  readonly name: string;
  readonly ports?: readonly { readonly name?: string; readonly containerPort: number }[];
}

/** Kamaji gives the server's ports names of its own, and has the API server's containers beside it. */
const KAMAJI_SERVER: DiscoveredPod = {
  metadata: { labels: { 'kamaji.clastix.io/name': 'acme' } },
  spec: {
    containers: [
      { name: 'kube-apiserver', ports: [{ containerPort: 6443 }] },
      { name: 'kube-scheduler' },
      { name: 'kube-controller-manager' },
      {
        name: 'konnectivity-server',
        ports: [
          { name: 'agentport', containerPort: 8132 },
          { name: 'adminport', containerPort: 8133 },
          { name: 'healthport', containerPort: 8134 },
        ],
      },
    ],
  },
};

const KAMAJI_AGENT: DiscoveredPod = {
  metadata: { labels: { 'k8s-app': 'konnectivity-agent' } },
  spec: { containers: [{ name: 'konnectivity-agent' }] },
};

/** HyperShift declares no port of the server. The pod is the API server's. */
const HYPERSHIFT_SERVER: DiscoveredPod = {
  metadata: { labels: { app: 'kube-apiserver' } },
  spec: {
    containers: [
      { name: 'apply-bootstrap' },
      { name: 'kube-apiserver', ports: [{ name: 'client', containerPort: 6443 }] },
      { name: 'konnectivity-server' },
      { name: 'audit-logs' },
    ],
  },
};

/** The agents in the guest cluster, and those in the control plane. */
const HYPERSHIFT_AGENT: DiscoveredPod = {
  metadata: { labels: { app: 'konnectivity-agent' } },
  spec: { containers: [{ name: 'konnectivity-agent' }] },
};

/** Each pod, and the recipe and program whose command line it has. */
export const OPERATORS: readonly (readonly [name: string, pod: DiscoveredPod, ...of: [Recipe, Program]])[] = [
  ['Kamaji, server', KAMAJI_SERVER, 'kamaji', 'proxy-server'],
  ['Kamaji, agent', KAMAJI_AGENT, 'kamaji', 'proxy-agent'],
  ['HyperShift, server', HYPERSHIFT_SERVER, 'hypershift', 'proxy-server'],
  ['HyperShift, agent', HYPERSHIFT_AGENT, 'hypershift', 'proxy-agent'],
];

type Recipe = CommandLine['recipe'];
type Program = CommandLine['program'];

/** Returns the port that an operator gives the health server. */
export function healthPortOf(recipe: Recipe, program: Program): number {
  const flag = program === 'proxy-server' ? '--health-port' : '--health-server-port';
  const args = COMMAND_LINES.find((line) => line.recipe === recipe && line.program === program)?.args ?? [];
  // Both `--flag=value` and `--flag value`.
  const [, port] = args.join(' ').match(new RegExp(`(?:^| )${flag}[= ](\\d+)`)) ?? [];
  return Number(port);
}
