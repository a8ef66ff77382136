import { BlockList } from 'node:net';
import { checkTlsFiles, faultOfSocketPath, hiddenSocket, readFlagFile } from '../files.ts';
import { bool, duration, FlagError, int, oneOf, ownTopic, string, strings, topic, type Values } from '../flag.ts';
import { readCidr } from '../syntax.ts';

/** Upstream keeps its servers away from the reserved and the ephemeral ports. */
export const SERVER_PORTS = { lowest: 1024, highest: 49_151 } as const;

export const callerListening = topic('Listening: callers (API servers)', {
  'uds-name': string('', "Path of a unix socket to listen on, of mode 0660: this process' user and group can dial."),
  'delete-existing-uds-file': bool(true, 'Remove a socket at --uds-name on which nobody listens any more.'),
  mode: oneOf(['', 'grpc', 'http-connect'])(
    '',
    'Protocol of callers: grpc or http-connect. If unset, one listener serves both.',
  ),
  'server-port': int(8090, 'TCP port for callers, with mutual TLS, beside --uds-name. 0 for none.', {
    port: { bind: 'server-bind-address', ...SERVER_PORTS, optional: true },
  }),
  'server-bind-address': string('', 'Address of --server-port. Empty for all.'),
  'frontend-keepalive-time': duration(
    3_600_000,
    'How long a caller may be silent before it gets a gRPC keepalive ping; 1m at most.',
  ),
});

export const callerTls = topic('TLS: callers', {
  'server-cert': string('', 'Certificate of --server-port, with its chain.'),
  'server-key': string('', 'Private key of --server-cert.'),
  'server-ca-cert': string('', "CA certificates that sign callers' certificates. Required with --server-port."),
});

export const callerTokens = ownTopic('TLS: callers', {
  'caller-token-file': string(
    '',
    'Tokens that callers may show in Proxy-Authorization instead of a certificate: a file of lines of isthmus tenants token. --server-ca-cert is then optional.',
  ),
});

type HoldFlags = Values<typeof callerListening & typeof callerTls & typeof gateways>;

type Flags = Values<typeof callerListening & typeof callerTls & typeof callerTokens>;

/** With --tenants-dir, callers come in by ports and sockets of their tenants' own, or prove their tenant at --server-port. */
function checkTenantCallers(flags: Flags): void {
  if (flags['uds-name'] !== '') {
    throw new FlagError(
      'uds-name',
      "cannot be combined with --tenants-dir, because it would be of no tenant: name the socket in a tenant's file (callers[].unixSocket)",
    );
  }
  if (flags['caller-token-file'] !== '') {
    throw new FlagError(
      'caller-token-file',
      "cannot be combined with --tenants-dir, because it would be of no tenant: put its lines into a tenant's file (callers[].passwords)",
    );
  }
  for (const name of ['server-cert', 'server-key'] as const) {
    if (flags[name] === '' && flags['server-port'] !== 0)
      throw new FlagError(
        name,
        `must be set: callers connect to --server-port ${flags['server-port']} with TLS; set --server-port=0 to serve only the tenants' own ports and sockets`,
      );
  }
}

export function checkCallers(flags: Flags & { readonly 'tenants-dir': string }, warn: (message: string) => void): void {
  if (flags['tenants-dir'] === '') checkOwnCallers(flags, warn);
  else checkTenantCallers(flags);
  checkTlsFiles(flags, 'server-cert', 'server-key', 'server-ca-cert');
}

function checkOwnCallers(flags: Flags, warn: (message: string) => void): void {
  if (flags['uds-name'] === '' && flags['server-port'] === 0) {
    throw new FlagError('uds-name', 'must be set when --server-port is 0: otherwise callers cannot connect');
  }
  if (flags['uds-name'] !== '') checkSocketPath(flags['uds-name'], warn);
  const byToken = flags['caller-token-file'] !== '';
  if (byToken) readFlagFile('caller-token-file', flags['caller-token-file']);
  for (const name of ['server-cert', 'server-key', 'server-ca-cert', 'caller-token-file'] as const) {
    const isSet = flags[name] !== '';
    if (isSet && flags['server-port'] === 0) throw new FlagError(name, 'has no effect while --server-port is 0');
    const optional = name === 'caller-token-file' || (name === 'server-ca-cert' && byToken);
    if (!isSet && !optional && flags['server-port'] !== 0) {
      const advice = flags['uds-name'] === '' ? '' : '; set --server-port=0 to serve only the unix socket';
      throw new FlagError(
        name,
        `must be set: callers connect to --server-port ${flags['server-port']} with mutual TLS${advice}`,
      );
    }
  }
}

function checkSocketPath(path: string, warn: (message: string) => void): void {
  const fault = faultOfSocketPath(path);
  if (fault !== undefined) throw new FlagError('uds-name', fault);
  const hidden = hiddenSocket(path);
  if (hidden !== undefined) warn(`--uds-name: ${hidden}`);
}

export const proxyProtocol = ownTopic('Listening: behind a load balancer', {
  'proxy-protocol-networks': strings(
    [],
    'Networks of load balancers, a comma list. From them, and only from them, connections of callers and agents begin with a header of the PROXY protocol (v1 or v2). Logs, audit and limits use the source in it.',
  ),
});

/** @returns undefined if there are none @throws FlagError */
export function proxyNetworks(flags: Values<typeof proxyProtocol>): BlockList | undefined {
  const texts = flags['proxy-protocol-networks'];
  return texts.length === 0 ? undefined : readNetworks('proxy-protocol-networks', texts);
}

/** @throws FlagError */
export function readNetworks(flag: string, texts: readonly string[]): BlockList {
  const networks = new BlockList();
  for (const text of texts) {
    const cidr = readCidr(text);
    if (!cidr)
      throw new FlagError(flag, `${JSON.stringify(text)} is no network: want a comma list such as 10.0.0.0/8,fd00::/8`);
    networks.addSubnet(cidr.address, cidr.bits, cidr.family);
  }
  return networks;
}

export const gateways = ownTopic('Gateways', {
  gateways: strings(
    [],
    'Gateways, the one to prefer first: a comma list of unix sockets (/path or unix:/path) and host:port (mutual TLS).',
  ),
  'gateway-ca-cert': string('', "CA certificates that sign gateways' certificates."),
  'gateway-cert': string('', 'Certificate to show to gateways, as a caller does, with its chain.'),
  'gateway-key': string('', 'Private key of --gateway-cert.'),
});

/** Where a gateway listens for callers. */
export type GatewayPlace = { readonly path: string } | { readonly host: string; readonly port: number };

/** @throws FlagError */
export function parseGateways(flags: Pick<Values<typeof gateways>, 'gateways'>): ReadonlyMap<string, GatewayPlace> {
  const places = new Map<string, GatewayPlace>();
  for (const text of flags.gateways) {
    const [, path] = /^(?:unix:(?:\/\/)?)?(\/.*)$/.exec(text) ?? [];
    places.set(text, path === undefined ? hostAndPort(text) : { path });
  }
  if (places.size === 0) throw new FlagError('gateways', 'must be set: name at least one gateway, /path or host:port');
  return places;
}

function hostAndPort(text: string): GatewayPlace {
  const [, v6, name, digits] = /^(?:\[([\da-fA-F:.]+)\]|([\w.-]+)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  const host = v6 ?? name;
  if (host !== undefined && port > 0 && port < 65_536) return { host, port };
  throw new FlagError('gateways', `${JSON.stringify(text)} is no gateway: want /path, unix:/path or host:port`);
}

/** Of `isthmus hold`: where it listens, and where its gateways are. */
export function checkHold(flags: HoldFlags, warn: (message: string) => void): void {
  // It verifies no tokens.
  checkOwnCallers({ ...flags, 'caller-token-file': '' }, warn);
  checkTlsFiles(flags, 'server-cert', 'server-key', 'server-ca-cert');
  for (const [text, place] of parseGateways(flags)) {
    if ('path' in place) {
      if (place.path !== flags['uds-name']) continue;
      throw new FlagError('gateways', `${text} is this program's own --uds-name: name the socket of the gateway`);
    }
    for (const name of ['gateway-cert', 'gateway-key', 'gateway-ca-cert'] as const)
      if (flags[name] === '') throw new FlagError(name, `must be set: --gateways names ${text}, which is mutual TLS`);
  }
  checkTlsFiles(flags, 'gateway-cert', 'gateway-key', 'gateway-ca-cert');
}
