import type { PeerLinks } from '@isthmus/transport';
import type { Directory } from '@isthmus/tunnel';

/** How many of the plane's other hubs dials can be sent to. Those that drain do not count: their links end. */
export function hubLinks(directory: Directory, peers: PeerLinks, own?: string): string {
  let hubs = 0;
  for (const { hubId, peerAddress, draining } of directory.hubs()) {
    if (peerAddress !== '' && !draining && hubId !== own) hubs++;
  }
  return `links: ${peers.up}, hubs: ${hubs}`;
}
