import { X509Certificate } from 'node:crypto';
import { inWords as messageOf } from '@isthmus/tunnel';

/** How to reach an API server and who to be there. PEM texts, not paths. */
export interface KubeConnection {
  readonly server: URL;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly token?: string;
  /** The name to expect in the server's certificate, where it is not the host's. */
  readonly serverName?: string;
  /** Takes any certificate. For tests of a cluster only, as in kubectl. */
  readonly insecureSkipTlsVerify: boolean;
}

/** Reads a connection anew: tokens and certificates are rotated in place. Rejects with what is wrong and where. */
export type KubeConnectionSource = () => Promise<KubeConnection>;

export { messageOf };

/** Checks early what would otherwise fail at the first request, with words that do not name the file. */
export function checkedCertificates(pem: string, where: string): string {
  try {
    new X509Certificate(pem);
    return pem;
  } catch (cause) {
    throw new Error(`${where} is not a PEM certificate: ${messageOf(cause)}`, { cause });
  }
}

/** An API server's address, as a URL that other paths can be appended to. */
export function parseServer(server: string, where: string): URL {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') {
    throw new Error(`${where}: server ${JSON.stringify(server)} is no http(s) URL`);
  }
  return url;
}
