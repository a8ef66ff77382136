import { checkTlsFiles } from '../files.ts';
import { duration, FlagError, ownTopic, string, strings, type Values } from '../flag.ts';

const FROM = ['cluster-api', 'kamaji'] as const;

export const tenantsSync = ownTopic('Tenants', {
  'tenants-dir': string(
    '',
    'Directory to write: that of a gateway or hub beside this program, which nobody else writes.',
  ),
  out: string('', 'Directory to write instead of --tenants-dir, if no gateway or hub reads it here.'),
  from: strings(
    [],
    'Objects with the label or annotation isthmus.dev/plane that become tenants, beside Tenant objects: cluster-api (Cluster, also of k0smotron), kamaji (TenantControlPlane).',
  ),
  plane: string('isthmus', 'Name of the plane, in the label isthmus.dev/plane of objects and their secrets.'),
  namespace: string('', 'The only namespace to read. Empty for all.'),
  grace: duration(
    300_000,
    'How long a tenant stays after its object is deleted. The annotation isthmus.dev/remove: now ends it at once.',
  ),
  'agent-namespace': string('kube-system', "Namespace of the service account of a cluster's agents, for --from."),
  'agent-service-account': string('konnectivity-agent', 'Name of that service account.'),
  'authentication-audience': string('system:konnectivity-server', 'Audience of its tokens.'),
  'status-namespace': string(
    '',
    "Namespace of the Lease by which one of several syncs writes the objects' status. Empty: none is written.",
  ),
  member: string(
    '127.0.0.1:8095',
    'Admin port of a gateway that says how many agents a tenant has, for the status; or of a hub, for its own. Empty: nobody is asked.',
  ),
  'member-ca-cert': string(
    '',
    'CA certificates that sign the certificate of --member, which is for its host or isthmus-admin. With it, --member is asked by TLS.',
  ),
  'member-cert': string('', 'Certificate to show to --member, with its chain.'),
  'proxy-url': string(
    '',
    'Where programs reach the gateways, https://HOST:PORT, for the ClusterProfile of each Tenant that asks for one. A name of the tenant replaces HOST. Empty: none is written.',
  ),
  'proxy-ca-cert': string(
    '',
    'CA certificates of the gateways, which a ClusterProfile has beside that of the cluster.',
  ),
  'member-key': string('', 'Private key of --member-cert.'),
});

type Flags = Values<typeof tenantsSync>;

export function checkSync(flags: Flags): void {
  const { 'tenants-dir': dir, out, from, plane, member } = flags;
  if ((dir === '') === (out === '')) throw new FlagError('tenants-dir', 'must be set, or --out, and not both');
  const foreign = from.find((each) => !(FROM as readonly string[]).includes(each));
  if (foreign !== undefined)
    throw new FlagError('from', `bad kind ${JSON.stringify(foreign)}: want ${FROM.join(' or ')}`);
  if (!/^[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$/.test(plane))
    throw new FlagError('plane', `bad name ${JSON.stringify(plane)}: want the value of a label`);
  if (member !== '' && !/^\S+:\d{1,5}$/.test(member))
    throw new FlagError('member', `bad address ${JSON.stringify(member)}: want HOST:PORT`);
  const url = flags['proxy-url'];
  if (url !== '' && (!URL.canParse(url) || new URL(url).protocol !== 'https:'))
    throw new FlagError('proxy-url', `bad URL ${JSON.stringify(url)}: want https://HOST:PORT`);
  checkTlsFiles(flags, 'member-cert', 'member-key', 'member-ca-cert');
}
