import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { GATEWAY_NAME, HUB_SERVER_NAME } from '@isthmus/tunnel/names';
import {
  CertificateAuthority,
  type Hosts,
  type IdentityTexts,
  type IssueOptions,
  LOOPBACK,
  selfSigned,
} from './authority.ts';

export { type CostlyKind, costlyChain } from './costly.ts';

const DAY_MS = 86_400_000;

/** Paths of PEM files. */
export interface Identity {
  readonly cert: string;
  readonly key: string;
}

/** Options of a certificate, which is by default valid for as long as the authority itself. */
export type IdentityOptions = Partial<IssueOptions>;

export type PeerRole = 'gateway' | 'hub';
const ROLES = {
  gateway: { name: GATEWAY_NAME, use: 'client' },
  hub: { name: HUB_SERVER_NAME, use: 'server' },
} as const;

/** A throw-away certificate authority that writes its certificates into a directory. */
export class Authority {
  /** Path of the authority's own certificate. */
  readonly cert: string;
  readonly #dir: string;
  readonly #name: string;
  readonly #authority: CertificateAuthority;
  readonly #validMs: number;
  #issued = 0;

  private constructor(dir: string, name: string, cert: string, authority: CertificateAuthority, validMs: number) {
    this.cert = cert;
    this.#dir = dir;
    this.#name = name;
    this.#authority = authority;
    this.#validMs = validMs;
  }

  /**
   * @param name becomes part of its file names
   * @param validMs validity from now in milliseconds. A day lets tests move clocks
   * @param commonName its subject
   */
  static async create(
    dir: string,
    name: string,
    validMs = DAY_MS,
    commonName = `${name} authority`,
  ): Promise<Authority> {
    const authority = await CertificateAuthority.create(commonName, validMs);
    const path = join(dir, `${name}-ca.pem`);
    await writeFile(path, authority.cert);
    return new Authority(dir, name, path, authority, validMs);
  }

  /** Issues a certificate for localhost, 127.0.0.1 and ::1 that is valid only for servers. */
  server(options: IdentityOptions = {}): Promise<Identity> {
    return this.#issue('localhost', { hosts: LOOPBACK, ...options });
  }

  /** Issues a certificate that is valid only for clients. */
  client(commonName: string, options: IdentityOptions = {}): Promise<Identity> {
    return this.#issue(commonName, options);
  }

  /** Issues a certificate for links between gateways and hubs. An all-in-one server has both roles. */
  peer(roles: readonly PeerRole[], options: IdentityOptions = {}): Promise<Identity> {
    const hosts: Hosts = roles.map((role) => ({ type: 'dns', value: ROLES[role].name }));
    return this.#issue(roles.join('-'), { hosts, uses: roles.map((role) => ROLES[role].use), ...options });
  }

  /** Issues a client certificate that expired a minute ago. */
  expired(commonName: string): Promise<Identity> {
    return this.#issue(commonName, { validMs: -60_000 });
  }

  /** Issues a certificate of another authority that has the same name; a client certificate by default. */
  async foreign(commonName: string, options: IdentityOptions = {}): Promise<Identity> {
    const impostor = await this.#authority.impostor();
    const foreign = new Authority(this.#dir, `${this.#name}-foreign`, this.cert, impostor, this.#validMs);
    return foreign.#issue(commonName, options);
  }

  /** Issues a list of the certificates that are revoked, as PEM. */
  async revocations(...revoked: readonly Identity[]): Promise<string> {
    const certificates = await Promise.all(revoked.map(({ cert }) => readFile(cert, 'utf8')));
    return this.#authority.revoke(certificates, this.#validMs);
  }

  /** Issues a self-signed client certificate. */
  async alone(commonName: string): Promise<Identity> {
    return this.#write(await selfSigned(commonName, ['client']));
  }

  async #issue(commonName: string, options: IdentityOptions): Promise<Identity> {
    return this.#write(await this.#authority.issue({ commonName, validMs: this.#validMs, ...options }));
  }

  async #write({ cert, key }: IdentityTexts): Promise<Identity> {
    const stem = join(this.#dir, `${this.#name}-${this.#issued++}`);
    const identity = { cert: `${stem}.pem`, key: `${stem}-key.pem` };
    await writeFile(identity.cert, cert);
    await writeFile(identity.key, key, { mode: 0o600 });
    return identity;
  }
}

/** The authorities of a test: one each for callers, agents, and peers (gateways and hubs). */
export interface Trust {
  readonly dir: string;
  readonly callers: Authority;
  readonly agents: Authority;
  readonly peers: Authority;
  /** The caller's certificate. */
  readonly caller: Identity;
}

/** @param caller name of the caller that may dial */
export async function createTrust(dir: string, caller: string, validMs?: number): Promise<Trust> {
  const [callers, agents, peers] = await Promise.all([
    Authority.create(dir, 'callers', validMs),
    Authority.create(dir, 'agents', validMs),
    Authority.create(dir, 'peers', validMs),
  ]);
  return { dir, callers, agents, peers, caller: await callers.client(caller) };
}
