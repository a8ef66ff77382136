import { getServers } from 'node:dns';
import { isIP } from 'node:net';
import { formatDestination } from '@isthmus/tunnel';

const DNS_PORT = 53;

/**
 * Go's words for the resolver that answered no (`lookup NAME on 10.0.0.10:53: no such host`). getaddrinfo does not tell which resolver
 * it was, so it is known only if there is just one, as in a pod.
 */
export function onResolver(servers: readonly string[] = getServers()): string {
  const [only, ...others] = new Set(servers);
  return only === undefined || others.length > 0 ? '' : ` on ${resolverAddress(only)}`;
}

/** @param server as `getServers` returns it: without a port if that is 53 */
export function resolverAddress(server: string): string {
  return isIP(server) === 0 ? server : formatDestination({ host: server, port: DNS_PORT });
}
