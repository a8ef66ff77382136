import type { BlockList } from 'node:net';
import { apiServerFaults, checkServerName, comparableAddress, type OwnPlaces } from '@isthmus/admission/api-servers';
import { CertificatePool, isIP, isLoopback, machineAddresses, ownChain } from '@isthmus/runtime';
import { type Destination, formatDestination, parseDestination } from '@isthmus/tunnel';
import { readFlagFile } from '../files.ts';
import { bool, checked, FlagError, int, ownTopic, strings, type Values } from '../flag.ts';
import { readNetworks, SERVER_PORTS } from './callers.ts';

const TOPIC = 'Listening: clients of API servers';

const addresses = {
  'api-server': strings(
    [],
    'host:port of each API server, as this program reaches it. Without --api-server-name, only agents lead to it (--api-server-listen).',
  ),
  'api-server-proxy-protocol': bool(
    false,
    'Begin each connection to the API server with a header of the PROXY protocol (v2).',
  ),
};

/** At a gateway, which connects to API servers for hubs. */
export const apiServerOfGateway = ownTopic(TOPIC, addresses);

export const apiServer = ownTopic(TOPIC, {
  'api-server-name': strings(
    [],
    "Names by which clients reach the API server at --agent-port (SNI): a comma list. With --tenants-dir, a tenant's file says it (apiServer).",
  ),
  ...addresses,
  'api-server-port': int(0, 'TCP port for clients of API servers alone, beside --agent-port. 0 for none.', {
    port: { bind: 'agent-bind-address', ...SERVER_PORTS, optional: true },
  }),
});

type Flags = Values<typeof apiServer> & {
  readonly 'tenants-dir': string;
  readonly 'cluster-cert': string;
  readonly 'advertise-address': string;
  readonly 'advertise-agent-address': string;
};

const OF_ONE_TENANT = ['api-server-name', 'api-server'] as const;

/** @param flags of a hub, or of a gateway, which has no names @throws FlagError */
export function checkApiServer(flags: Values<typeof apiServerOfGateway> & Partial<Flags>): void {
  const { 'api-server-name': names = [], 'api-server': addresses, 'tenants-dir': tenants = '' } = flags;
  const given = OF_ONE_TENANT.find((name) => (flags[name]?.length ?? 0) > 0);
  if (tenants !== '' && given !== undefined)
    throw new FlagError(given, "cannot be combined with --tenants-dir: a tenant's file says it (apiServer)");
  if (tenants === '' && given === undefined && (flags['api-server-port'] ?? 0) !== 0)
    throw new FlagError('api-server-port', 'has no effect without --api-server-name or --tenants-dir');
  if (names.length > 0 && addresses.length === 0)
    throw new FlagError('api-server', 'must be set when --api-server-name is');
  for (const name of names) checked('api-server-name', () => checkServerName(name));
  for (const address of addresses) checked('api-server', () => parseDestination(address));
  if (given === undefined) return;
  const nowhere = { 'cluster-cert': '', 'advertise-address': '', 'advertise-agent-address': '' };
  const [fault] = apiServerFaults({ names, addresses }, ownPlaces({ ...nowhere, ...flags }));
  if (fault) throw new FlagError(fault.at.includes('names') ? 'api-server-name' : 'api-server', fault.message);
}

/** Where the API server is, by flags. @returns undefined if they do not say it */
export function apiServerAt(flags: Values<typeof apiServerOfGateway> & Partial<Values<typeof apiServer>>) {
  const { 'api-server': addresses, 'api-server-proxy-protocol': proxyProtocol, 'api-server-name': names = [] } = flags;
  return addresses.length > 0 ? { names, addresses, proxyProtocol } : undefined;
}

/** The ports that a program listens on by its flags. */
export function portsOfProcess(flags: object): number[] {
  return Object.entries(flags).flatMap(([name, value]) =>
    name.endsWith('port') && typeof value === 'number' && value > 0 ? [value] : [],
  );
}

/** Where a hub is reached, by its flags and its certificate. @throws FlagError if that cannot be read */
export function ownPlaces(flags: Omit<Flags, keyof Values<typeof apiServer> | 'tenants-dir'>): OwnPlaces {
  const advertised = [flags['advertise-agent-address'], flags['advertise-address']].filter(Boolean);
  const told = new Set(advertised.map((text) => formatDestination(comparable(parseDestination(text)))));
  const [agents] = advertised.map(parseDestination);
  const ports = portsOfProcess(flags);
  const certificate = flags['cluster-cert'];
  const [leaf] =
    certificate === '' ? [] : CertificatePool.of(ownChain(readFlagFile('cluster-cert', certificate)).pem).all;
  const names = [...(leaf?.names?.dns ?? []), ...(agents && isIP(agents.host) === 0 ? [agents.host] : [])];
  const here = ({ host, port }: Destination) =>
    ports.includes(port) && (isLoopback(host) || ANY.includes(host) || machineAddresses().includes(host));
  return {
    names: new Set(names.map((name) => name.toLowerCase())),
    ports: new Set([...ports, ...(agents ? [agents.port] : [])]),
    isOwn: (address) => here(address) || told.has(formatDestination(address)),
  };
}

const ANY = ['0.0.0.0', '::'];

function comparable({ host, port }: Destination): Destination {
  return { host: comparableAddress(host), port };
}

export const apiServerOfAgent = ownTopic('Listening: clients of the API server', {
  'api-server-listen': strings(
    [],
    "ADDRESS:PORT where this node and its pods reach the tenant's API server, through a hub: the address that API servers advertise. A comma list. See docs/ONE-ADDRESS.md.",
  ),
  'api-server-allow': strings(
    [],
    "Networks that may use --api-server-listen, such as the pods': a comma list. This machine always may.",
  ),
});

/** Where an agent's clients reach their API server. */
export interface ApiServerListening {
  readonly places: readonly Destination[];
  readonly networks: BlockList;
}

/** @returns undefined if there is none @throws FlagError */
export function apiServerListening(flags: Values<typeof apiServerOfAgent>): ApiServerListening | undefined {
  const { 'api-server-listen': listen, 'api-server-allow': allow } = flags;
  const networks = readNetworks('api-server-allow', allow);
  if (listen.length === 0) {
    if (allow.length > 0) throw new FlagError('api-server-allow', 'has no effect without --api-server-listen');
    return undefined;
  }
  const places = listen.map((text) => {
    const { host, port } = checked('api-server-listen', () => parseDestination(text));
    if (isIP(host) === 0 || ANY.includes(comparableAddress(host)))
      throw new FlagError('api-server-listen', `${text} is no address of one interface: want such as 172.31.0.1:6443`);
    return { host, port };
  });
  const texts = places.map((place) => formatDestination(comparable(place)));
  const again = texts.find((text, index) => texts.indexOf(text) < index);
  if (again !== undefined) throw new FlagError('api-server-listen', `${again} is there twice`);
  return { places, networks };
}
