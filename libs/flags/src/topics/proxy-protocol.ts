import { BlockList } from 'node:net';
import { readCidr } from '../cidr.ts';
import { FlagError } from '../error.ts';
import { strings, topic, type Values } from '../flag.ts';

export const proxyProtocol = topic('Listening: behind a load balancer', {
  'proxy-protocol-networks': strings(
    [],
    "Networks of load balancers that send a header of the PROXY protocol (v1 or v2) to --server-port, --agent-port and tenants' own ports: a comma list such as 10.0.0.0/8. " +
      'Logs, audit and limits then use the true source. A connection from these networks without the header is refused, and so is one from elsewhere with it.',
    { own: true },
  ),
});

/** @returns undefined if there are none @throws FlagError */
export function proxyNetworks(flags: Values<typeof proxyProtocol>): BlockList | undefined {
  const texts = flags['proxy-protocol-networks'];
  if (texts.length === 0) return undefined;
  const networks = new BlockList();
  for (const text of texts) {
    const cidr = readCidr(text);
    if (!cidr) {
      throw new FlagError(
        'proxy-protocol-networks',
        `${JSON.stringify(text)} is no network: want a comma list such as 10.0.0.0/8,fd00::/8`,
      );
    }
    networks.addSubnet(cidr.address, cidr.bits, cidr.family);
  }
  return networks;
}
