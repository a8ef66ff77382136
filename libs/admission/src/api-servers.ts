import { isIP } from '@isthmus/runtime';
import { type Destination, type Prohibition, parseDestination, prohibitedBy } from '@isthmus/tunnel';
import { comparableHost, HostPattern, readAddress, spelledAddress } from './patterns.ts';

export { comparableHost };

/** A host as it is compared: of an address, `::` for `::0` and `127.0.0.1` for `127.1`. */
export function comparableAddress(host: string): string {
  return String(isIP(host) === 0 ? (spelledAddress(host) ?? comparableHost(host)) : readAddress(host));
}

/** What is wrong with a part of `apiServer`, and where in a tenant's file. */
export interface ApiServerFault {
  readonly at: string;
  readonly message: string;
}

/** Where the hubs of a plane are reached. */
export interface OwnPlaces {
  /** Of a hub's certificate for agents, and by which agents are told to reach it. */
  readonly names: ReadonlySet<string>;
  /** Where agents, and clients of API servers, connect. */
  readonly ports: ReadonlySet<number>;
  /** Whether a program of the plane listens at an address of this machine, or says that it does. Its host is a `comparableAddress`. */
  readonly isOwn: (address: Destination) => boolean;
}

/** A tenant's API server, as its file says it, or flags. */
interface Named {
  readonly names?: readonly string[];
  readonly addresses: readonly string[];
}

/**
 * An API server may run on the hub's machine. The program's own ports there are prohibited by themselves. Who writes objects has nothing there: what
 * listens on loopback may trust whoever reaches it.
 */
export function apiServerLifted(ofObject: boolean): readonly Prohibition[] {
  return ofObject ? [] : ['loopback'];
}

/** @throws Error for what is no name of one server */
export function checkServerName(name: string): void {
  if (name.startsWith('*')) throw new Error(`"${name}" is a pattern: list each name`);
  new HostPattern(name);
}

/**
 * Checks names and addresses without resolving any. A connection that came back to the plane would go round without end.
 * @param agents the names by which the tenant's agents reach the hubs
 * @param ofObject whether the file is made of an object
 */
export function apiServerFaults(
  { names = [], addresses }: Named,
  own?: OwnPlaces,
  agents: readonly string[] = [],
  ofObject = false,
): ApiServerFault[] {
  const wanted = new Set(names.map(comparableHost));
  const taken = new Set(agents.map(comparableHost));
  const prohibited = prohibitedBy({ ownPorts: [], ownAddresses: () => [], lifted: apiServerLifted(ofObject) });
  const ofName = (name: string): string | undefined => {
    if (own?.names.has(name)) return `${name} is a name of the hubs: agents that ask for it would get the API server`;
    if (taken.has(name)) return `${name} is in server.serverNames too: agents that ask for it would get the API server`;
    return undefined;
  };
  const ofAddress = (text: string): string | undefined => {
    const address = parseDestination(text);
    const host = comparableAddress(address.host);
    const named = wanted.has(host) || own?.names.has(host);
    if ((named && own?.ports.has(address.port)) || own?.isOwn({ ...address, host }))
      return `${text} is the plane itself: name the API server's own address`;
    const prohibition = isIP(host) === 0 ? undefined : prohibited(host, address.port);
    return prohibition && `${text} is denied: no API server is there (${prohibition})`;
  };
  return [
    ...names.flatMap((name, index) => faultAt(`apiServer.names[${index}]`, ofName(comparableHost(name)))),
    ...addresses.flatMap((text, index) => faultAt(`apiServer.addresses[${index}]`, ofAddress(text))),
  ];
}

function faultAt(at: string, message: string | undefined): ApiServerFault[] {
  return message === undefined ? [] : [{ at, message }];
}
