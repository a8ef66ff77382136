/**
 * The arguments with which the control planes of others start proxy-server and proxy-agent, so that a changed image is all that changes.
 * Read in the sources of Kamaji (konnectivity_server.go and agent.go, May 2026), k0s 1.34 (konnectivity.go and konnectivityagent.go),
 * and HyperShift (the assets of kube-apiserver and konnectivity-agent, and the agents' DaemonSet in reconcile.go, 2026).
 */
export interface CommandLine {
  readonly recipe: string;
  readonly program: 'proxy-server' | 'proxy-agent';
  readonly args: readonly string[];
}

const KAMAJI_SERVER = [
  '--admin-port=8133',
  '--agent-namespace=kube-system',
  '--agent-port=8132',
  '--agent-service-account=konnectivity-agent',
  '--authentication-audience=system:konnectivity-server',
  '--cluster-cert=/etc/kubernetes/pki/apiserver.crt',
  '--cluster-key=/etc/kubernetes/pki/apiserver.key',
  '--health-port=8134',
  '--kubeconfig=/etc/kubernetes/konnectivity-server.conf',
  '--mode=grpc',
  '--server-count=1',
  '--server-port=0',
  '--uds-name=/run/konnectivity/konnectivity-server.socket',
];

const KAMAJI_AGENT = [
  '--admin-server-port=8133',
  '--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt',
  '--health-server-port=8134',
  '--logtostderr=true',
  '--proxy-server-host=192.0.2.10',
  '--proxy-server-port=8132',
  '--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token',
  '-v=8',
];

/** `--server-id` is the machine's id, and k0s restarts its server when the number of controllers changes. */
const K0S_SERVER = [
  '--uds-name=/run/k0s/konnectivity-server/konnectivity-server.sock',
  '--cluster-cert=/var/lib/k0s/pki/server.crt',
  '--cluster-key=/var/lib/k0s/pki/server.key',
  '--kubeconfig=/var/lib/k0s/pki/konnectivity.conf',
  '--mode=grpc',
  '--server-port=0',
  '--agent-port=8132',
  '--admin-port=8133',
  '--health-bind-address=localhost',
  '--health-port=8092',
  '--agent-namespace=kube-system',
  '--agent-service-account=konnectivity-agent',
  '--authentication-audience=system:konnectivity-server',
  '--logtostderr=true',
  '--stderrthreshold=1',
  '--v=1',
  '--enable-profiling=false',
  '--delete-existing-uds-file=true',
  '--server-id=5d3c0a7e9b1f4c62',
  '--proxy-strategies=destHost,default',
  '--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256',
  '--server-count=1',
];

const K0S_AGENT = [
  '--logtostderr=true',
  '--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt',
  '--proxy-server-host=192.0.2.10',
  '--proxy-server-port=8132',
  '--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token',
  '--agent-identifiers=host=192.0.2.21',
  '--agent-id=192.0.2.21',
];

const HYPERSHIFT_SERVER = [
  '--logtostderr=true',
  '--log-file-max-size=0',
  ...['--cluster-cert', '/etc/konnectivity/cluster/tls.crt', '--cluster-key', '/etc/konnectivity/cluster/tls.key'],
  ...['--server-cert', '/etc/konnectivity/server/tls.crt', '--server-key', '/etc/konnectivity/server/tls.key'],
  ...['--server-ca-cert', '/etc/konnectivity/ca/ca.crt'],
  ...['--server-port', '8090', '--agent-port', '8091', '--health-port', '2041'],
  '--admin-port=8093',
  '--mode=http-connect',
  '--proxy-strategies=destHost,defaultRoute',
  ...['--keepalive-time', '30s', '--frontend-keepalive-time', '30s'],
];

const HYPERSHIFT_AGENT = [
  '--logtostderr=true',
  ...['--ca-cert', '/etc/konnectivity/ca/ca.crt'],
  ...['--agent-cert', '/etc/konnectivity/agent/tls.crt', '--agent-key', '/etc/konnectivity/agent/tls.key'],
  ...['--proxy-server-host', '192.0.2.10', '--proxy-server-port', '8091', '--health-server-port', '2041'],
  '--agent-identifiers=default-route=true',
  ...['--keepalive-time', '30s', '--probe-interval', '5s', '--sync-interval', '5s', '--sync-interval-cap', '30s'],
  ...['--v', '3'],
];

/** HyperShift's second kind of agent, in the control plane itself, for destinations that it names. */
const HYPERSHIFT_AGENT_INSIDE = [
  ...HYPERSHIFT_AGENT.filter((arg) => !arg.startsWith('--agent-identifiers')),
  '--sync-forever',
];

export const COMMAND_LINES: readonly CommandLine[] = [
  { recipe: 'kamaji', program: 'proxy-server', args: KAMAJI_SERVER },
  { recipe: 'kamaji', program: 'proxy-agent', args: KAMAJI_AGENT },
  { recipe: 'k0s', program: 'proxy-server', args: K0S_SERVER },
  { recipe: 'k0s', program: 'proxy-agent', args: K0S_AGENT },
  { recipe: 'hypershift', program: 'proxy-server', args: HYPERSHIFT_SERVER },
  { recipe: 'hypershift', program: 'proxy-agent', args: HYPERSHIFT_AGENT },
  { recipe: 'hypershift', program: 'proxy-agent', args: HYPERSHIFT_AGENT_INSIDE },
];
