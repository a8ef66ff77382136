import { CertificatePool } from '@isthmus/runtime';
import { inWords as messageOf } from '@isthmus/tunnel';

/** How to reach an API server, and the credentials. PEM texts, not paths. */
export interface KubeConnection {
  readonly server: URL;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly token?: string;
  /** The name to expect in the server's certificate, if it is not the host. */
  readonly serverName?: string;
  /** When the credentials expire, in milliseconds since 1970. Unset: not known. */
  readonly expires?: number;
  /** Call when the server has rejected the credentials: the next reading gets others, if there can be any. */
  readonly rejected?: () => void;
  /** Accepts any certificate. Only for tests of a cluster, as in kubectl. */
  readonly insecureSkipTlsVerify: boolean;
}

/** Reads the connection again, because tokens and certificates are rotated in place. Rejects with what is wrong and where. */
export type KubeConnectionSource = () => Promise<KubeConnection>;

export { messageOf };

/** Checks early what would otherwise fail at the first request, with an error that does not name the file. One certificate must be readable. */
export function checkedCertificates(pem: string, where: string): string {
  const { all, skipped } = CertificatePool.of(pem);
  if (all.length > 0) return pem;
  throw new Error([`${where} is not a PEM certificate`, ...skipped].join(': '));
}

/** Parses an API server's address into a URL to which paths can be appended. */
export function parseServer(server: string, where: string): URL {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') {
    throw new Error(`${where}: server ${JSON.stringify(server)} is not an http(s) URL`);
  }
  return url;
}
