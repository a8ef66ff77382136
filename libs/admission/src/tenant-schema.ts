import { isLoopback } from '@isthmus/runtime';
import { isName, parseDestination } from '@isthmus/tunnel';
import { DEFAULT_LIMITS, LIMIT_ENTRIES, type TenantLimit, type TenantLimits } from '@isthmus/tunnel/limits';
import * as v from 'valibot';
import { checkServerName } from './api-servers.ts';
import { ADMISSION } from './defaults.ts';
import { HostPattern, Prefix } from './patterns.ts';

const text = v.pipe(
  v.string('expected a text'),
  v.nonEmpty('may not be empty'),
  v.maxLength(ADMISSION.textCharacters, `may have ${ADMISSION.textCharacters} characters`),
);

/** A name that others show and log: of a rule, or of a caller. */
const name = v.pipe(text, v.check(isName, 'expected at most 264 characters, and only what can be printed'));

/** A path. One that is not absolute is relative to the tenant's file. */
const path = v.pipe(
  text,
  v.metadata({ file: true }),
  v.description('A file. A relative path starts from the directory of this file.'),
);

/** A tenant's name, as it stands in metrics, logs and SPIFFE IDs. */
const tenantName = v.pipe(
  text,
  v.regex(
    /^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$/,
    'expected up to 63 lower-case letters, digits, dots and hyphens, with a letter or digit first and last',
  ),
);

function whole(expected: string, least: number, most: number) {
  return v.pipe(
    v.number(expected),
    v.integer(expected),
    v.minValue(least, `${expected}, ${least} or more`),
    v.maxValue(most, `${expected}, ${most} or less`),
  );
}

const port = whole('expected a port number', 1, 65_535);

const count = whole('expected a whole number', 1, 1_000_000_000);

const flag = v.boolean('expected true or false');

function list<T extends v.GenericSchema>(item: T) {
  return v.pipe(
    v.array(item, 'expected a list'),
    v.minLength(1, 'expected at least one entry'),
    v.maxLength(ADMISSION.listEntries, `expected ${ADMISSION.listEntries} entries or fewer`),
  );
}

const SIZE = /^(\d+(?:\.\d+)?)\s*(k|M|G|Ki|Mi|Gi)?B?$/;
const FACTORS: Readonly<Record<string, number>> = {
  k: 1e3,
  M: 1e6,
  G: 1e9,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
};

/** @returns the number of bytes that a text such as `200MB` means; NaN if it means none */
function bytesOf(value: string | number): number {
  const [, digits, unit = ''] = SIZE.exec(String(value)) ?? [];
  return Math.round(Number(digits ?? Number.NaN) * (FACTORS[unit] ?? 1));
}

/** A number of bytes: `200MB`, `16MiB`, `65536`. */
const bytes = v.pipe(
  v.union([v.string(), v.number()], 'expected a number of bytes such as 200MB or 16MiB'),
  v.check((value) => bytesOf(value) >= 1, 'expected a number of bytes such as 200MB or 16MiB'),
  v.check((value) => !(bytesOf(value) > Number.MAX_SAFE_INTEGER), 'expected fewer bytes than 2^53'),
);

/** An https URL, or an http URL on this machine: an attacker who can change what is fetched chooses whom we trust. */
const url = v.pipe(
  text,
  v.check(isTrusted, 'expected a URL such as https://issuer.example (http only to a loopback address)'),
);

function isTrusted(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, hostname } = new URL(value);
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')));
}

const cidr = readable('A prefix such as 10.0.0.0/8, or an address.', (value) => new Prefix(value));

const hostPattern = readable('A DNS name, or a pattern such as *.example.com.', (value) => new HostPattern(value));

/** A text that a constructor reads; what it throws becomes the problem. */
function readable(description: string, read: (value: string) => unknown) {
  return v.pipe(
    text,
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      try {
        read(dataset.value);
      } catch (error) {
        addIssue({ message: (error as Error).message });
      }
    }),
    v.description(description),
  );
}

function described<T extends v.GenericSchema>(schema: T, description: string) {
  return v.pipe(schema, v.description(description));
}

/** A field that may be left out. */
function optional<T extends v.GenericSchema>(schema: T, description: string) {
  return v.exactOptional(described(schema, description));
}

function exactlyOne<T extends object>(...names: readonly string[]): v.CheckAction<T, string> {
  const hasOne = (value: T) => names.filter((name) => name in value).length === 1;
  return v.check(hasOne, `expected exactly one of ${names.join(', ')}`);
}

const server = described(
  v.strictObject({
    serverNames: described(list(hostPattern), 'Names that select this tenant by SNI.'),
    certificate: described(
      path,
      "The server certificate shown to the tenant's agents and callers, PEM with its chain.",
    ),
    key: described(path, "The certificate's private key, PEM."),
  }),
  'The server certificate that this tenant sees.',
);

/** What certificates of agents and of callers have in common. */
const certificates = v.strictObject({
  ca: optional(
    path,
    "The tenant's own CA bundle, PEM. The name is the subject's common name, or that of a SPIFFE ID of this tenant.",
  ),
  trustDomain: optional(
    text,
    "The trust domain that SPIFFE IDs must have. Without ca, the program's own CA bundle verifies them.",
  ),
  shared: optional(
    flag,
    'true: other tenants may list this CA too, if theirs say so as well. Who has a certificate of it may then act in each of them; SNI or the port chooses.',
  ),
  crl: optional(
    path,
    'Certificate revocation lists signed by an authority in ca, PEM or DER. Read again when it changes.',
  ),
});

type CertificatesFile = v.InferOutput<typeof certificates>;

const someAuthority = v.check<CertificatesFile, string>(
  ({ ca, trustDomain }) => ca !== undefined || trustDomain !== undefined,
  'expected ca or trustDomain',
);

const ownAuthority = v.check<CertificatesFile, string>(
  ({ ca, shared, crl }) => ca !== undefined || (shared === undefined && crl === undefined),
  'shared and crl go with ca',
);

const sharedTokens = described(
  flag,
  'true: other tenants may accept the same tokens, if theirs say so as well. Anyone with such a token may then act in each of them; SNI or the port chooses.',
);

const tokens = v.pipe(
  v.strictObject({
    issuer: described(text, 'What the token must say as its iss.'),
    audience: described(text, "What the token must say as its aud. Let callers' differ from agents'."),
    keys: optional(
      path,
      "The issuer's public keys: a JWKS file, or PEM such as kubeadm's sa.pub. Replace it to rotate.",
    ),
    jwksUrl: optional(url, 'Where to fetch the keys instead: https, or http on this machine. Fetched every 5 min.'),
    ca: optional(path, 'The CA bundle that verifies jwksUrl.'),
    subject: optional(text, 'The only subject allowed, such as system:serviceaccount:NAMESPACE:NAME.'),
    shared: v.exactOptional(sharedTokens),
  }),
  exactlyOne('keys', 'jwksUrl'),
);

const reviewingKubeconfig = described(
  path,
  "A kubeconfig of a user of the tenant's own API server that may create TokenReviews. exec is refused in it, because it would run a program here.",
);

const tokenReview = v.strictObject({
  kubeconfig: reviewingKubeconfig,
  audience: optional(text, 'Default: system:konnectivity-server.'),
  namespace: optional(text, "The agents' namespace. Default: kube-system."),
  serviceAccount: optional(text, "The agents' service account. Default: konnectivity-agent."),
  shared: v.exactOptional(sharedTokens),
});

const agent = v.pipe(
  v.strictObject({
    certificates: optional(v.pipe(certificates, someAuthority, ownAuthority), 'A client certificate.'),
    tokens: optional(tokens, 'A token that the hub verifies by itself, without asking anyone.'),
    tokenReview: optional(tokenReview, "A token that the tenant's own API server verifies, when the hub asks."),
    port: optional(port, "A port of the tenant's own, for agents that dial an address and send no SNI."),
  }),
  exactlyOne('certificates', 'tokens', 'tokenReview'),
);

const claims = described(
  v.strictObject({
    agentId: optional(
      v.picklist(['own', 'prefixed', 'any'], 'expected own, prefixed or any'),
      'own: the id that the credential names. prefixed: that id, or it with a hyphen and a suffix. any: any id. Default: own for certificates; any for tokens, because all agents of a service account show the same subject.',
    ),
    defaultRoute: optional(flag, 'Whether default-route=true is allowed. Default: true.'),
    ipv4: optional(list(cidr), 'Addresses that agents may list as ipv4=, or prefixes of such.'),
    ipv6: optional(list(cidr), 'The same for ipv6=.'),
    cidr: optional(list(cidr), 'Prefixes: agents may list these, or parts of them, as cidr=.'),
    host: optional(list(hostPattern), 'Names and patterns: agents may list these, or names below them, as host=.'),
  }),
  "What an agent may claim to be and to reach. Default: the credential's own id, and default-route.",
);

const callerCertificates = v.pipe(
  v.strictObject({
    ...certificates.entries,
    names: optional(
      list(text),
      'The only common names, or names of SPIFFE IDs, allowed. Set it if the same CA signs agents, kubelets or users.',
    ),
  }),
  someAuthority,
  ownAuthority,
);

const callerReview = v.strictObject({
  kubeconfig: reviewingKubeconfig,
  audience: optional(text, "Default: isthmus. Not the agents' audience: their tokens would be callers' tokens."),
  names: described(
    list(text),
    'The only user names allowed, such as system:serviceaccount:ci:deployer. They are the names of the callers.',
  ),
  shared: v.exactOptional(sharedTokens),
});

const password = v.strictObject({
  name: described(
    name,
    "The caller's name in rules and records. Two entries may have the same, so that tokens can overlap.",
  ),
  sha256: described(
    v.pipe(text, v.regex(/^[0-9a-f]{16}:[A-Za-z0-9_-]{43}$/, 'expected what isthmus tenants token prints')),
    'The salt and the hash of a token that isthmus tenants token made. The token cannot be found from it.',
  ),
});

const caller = v.pipe(
  v.strictObject({
    unixSocket: optional(
      path,
      'A unix socket that the gateway makes for this tenant. Every process that can open it is a caller, so its permissions decide.',
    ),
    port: optional(
      port,
      "A port that the gateway listens on for this tenant. Callers there need a certificate or a token if the tenant lists callers' certificates or tokens; otherwise, who can reach the port may dial.",
    ),
    certificates: optional(callerCertificates, 'A client certificate.'),
    tokens: optional(
      tokens,
      "Tokens of an issuer, in the Proxy-Authorization of a CONNECT over TLS. Their subject is the caller's name.",
    ),
    tokenReview: optional(callerReview, "The same, verified by the tenant's own API server."),
    passwords: optional(
      list(password),
      'Hashes of tokens that isthmus tenants token made, and that tools show as the password of Basic or as Bearer.',
    ),
    name: optional(text, "The caller's name in rules and records. Default: unix-socket, or port- and its number."),
  }),
  v.check(
    ({ name, unixSocket, port: number }) => name === undefined || unixSocket !== undefined || number !== undefined,
    'name goes with unixSocket or port: a certificate or a token has its own name',
  ),
  exactlyOne('unixSocket', 'port', 'certificates', 'tokens', 'tokenReview', 'passwords'),
);

const rule = v.pipe(
  v.strictObject({
    name: optional(name, "The rule's name in refusals and audit records. Default: its place, such as deny[0]."),
    cidr: optional(
      cidr,
      'A prefix or an address. The gateway compares it with addresses; the agent also with what a name resolves to, and dials that address.',
    ),
    host: optional(hostPattern, 'A name, or a pattern such as *.acme.example.'),
    ports: optional(list(port), 'Default: all.'),
    callers: optional(list(name), 'The callers it applies to, by name. Default: all.'),
  }),
  v.check(
    ({ cidr: prefix, host, ports }) => prefix !== undefined || host !== undefined || ports !== undefined,
    'expected cidr, host or ports',
  ),
  v.check(({ cidr: prefix, host }) => prefix === undefined || host === undefined, 'expected cidr or host, not both'),
);

const scrape = v.pipe(
  v.strictObject({
    job: described(name, 'What the targets are: __meta_isthmus_job.'),
    targets: optional(list(readable('HOST:PORT.', parseDestination)), 'HOST:PORT, as the agents reach it.'),
    nodes: optional(
      v.strictObject({
        kubeconfig: described(path, "A kubeconfig of the tenant's own API server, of a user that may list nodes."),
      }),
      'The kubelets of the nodes that the API server lists.',
    ),
    path: optional(v.pipe(text, v.startsWith('/', 'expected a path such as /metrics')), 'Default: /metrics.'),
  }),
  exactlyOne('targets', 'nodes'),
);

/** A name of one server, and no pattern. */
const serverName = readable('A DNS name.', checkServerName);

const apiServer = described(
  v.strictObject({
    names: optional(
      list(serverName),
      "Names by which clients reach it at the hubs' agent port (SNI). Such a connection is passed on as it is, TLS and all. Unset: only the tenant's agents lead to it.",
    ),
    addresses: described(
      list(readable('HOST:PORT.', parseDestination)),
      'HOST:PORT, as the hubs reach it. The one with the fewest connections is next; one that refuses comes last.',
    ),
    proxyProtocol: optional(
      flag,
      "true: each connection begins with a header of the PROXY protocol, version 2, with its client's address. Default: false.",
    ),
  }),
  "The tenant's API server, for clients outside: kubelets, kubectl, CI.",
);

type Amount = typeof count | typeof bytes;

/** A field of each limit. */
const limits = v.strictObject(
  Object.fromEntries(
    LIMIT_ENTRIES.map(([name, { bytes: inBytes, help }]) => [name, optional<Amount>(inBytes ? bytes : count, help)]),
  ) as Record<TenantLimit, ReturnType<typeof optional<Amount>>>,
);

/** @returns a tenant's limits: those of its file, and defaults. Without any in the file, the one object that all such tenants share */
export function limitsOf(file: TenantFile['limits']): TenantLimits {
  if (!file) return DEFAULT_LIMITS;
  const given = Object.entries(file).map(([name, value]) => [name, typeof value === 'number' ? value : bytesOf(value)]);
  const burst = file.dialsPerSecond !== undefined && { burst: 2 * bytesOf(file.dialsPerSecond) };
  return { ...DEFAULT_LIMITS, ...burst, ...Object.fromEntries(given) };
}

const deny = described(
  v.strictObject({
    agents: optional(list(text), 'Agents by the names of their credentials.'),
    callers: optional(list(text), 'Callers by name.'),
    serials: optional(
      list(v.pipe(text, v.regex(/^([0-9a-fA-F]{2}:?)*[0-9a-fA-F]{1,2}$/, 'expected a serial number in hex'))),
      'Certificates by serial number, in hex; colons are allowed.',
    ),
  }),
  'Credentials that are no longer accepted, although they are valid. Connections that stand on them end within 10 s.',
);

const expiryGraceSeconds = described(
  whole('expected a whole number of seconds', 0, ADMISSION.graceSeconds),
  'How long a connection may go on after the certificate or token that opened it has expired. New connections need a valid one. Default: 0.',
);

const origin = described(
  v.strictObject({
    kind: described(name, 'Tenant, Cluster or TenantControlPlane.'),
    namespace: described(name, "The object's namespace."),
    name: described(name, "The object's name."),
  }),
  'The Kubernetes object that isthmus tenants sync has made this file of. Leave it out of a file that you write.',
);

/** The shape of a tenant's file. docs/tenant.schema.json is made of it. */
export const tenantFile = v.strictObject({
  tenant: described(tenantName, "The tenant's name, unique in the plane."),
  source: v.exactOptional(origin),
  server: v.exactOptional(server),
  agents: optional(list(agent), 'How agents prove that they are of this tenant; any one is enough.'),
  claims: v.exactOptional(claims),
  callers: optional(list(caller), 'How callers prove that they are of this tenant; any one is enough.'),
  dial: optional(
    v.pipe(
      v.strictObject({
        deny: optional(list(rule), 'What callers may not dial.'),
        allow: optional(list(rule), 'The only thing that callers may dial.'),
        direct: optional(
          list(rule),
          'Of what the gateways list in --direct-destinations, what they dial themselves for this tenant, without an agent. Default: all of it. deny and allow apply too.',
        ),
      }),
      v.check(
        (rules) => Buffer.byteLength(JSON.stringify(rules)) <= ADMISSION.dialRulesBytes,
        `the rules have more than ${ADMISSION.dialRulesBytes} bytes as JSON: write wider prefixes, or shorter lists of ports and callers`,
      ),
    ),
    'What callers may dial. deny wins. With allow, only what it lists.',
  ),
  apiServer: v.exactOptional(apiServer),
  scrape: optional(list(scrape), 'What Prometheus finds at /sd of the admin port, all by https.'),
  limits: optional(limits, 'What the tenant may use of each gateway and each hub. Bytes may be 200MB or 64MiB.'),
  deny: v.exactOptional(deny),
  expiryGraceSeconds: v.exactOptional(expiryGraceSeconds),
});

export type TenantFile = v.InferOutput<typeof tenantFile>;
export type DialRule = v.InferOutput<typeof rule>;
