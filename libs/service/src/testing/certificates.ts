import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CertificateAuthority, type Hosts, LOOPBACK } from '../certificates/authority.ts';

export { type IdentityTexts, selfSigned } from '../certificates/authority.ts';

const DAY_MS = 86_400_000;

/** Paths of PEM files. */
export interface Identity {
  readonly cert: string;
  readonly key: string;
}

export interface IdentityOptions {
  /** When it stops being valid, in milliseconds from now; default in a day, which lets tests move clocks. */
  readonly validMs?: number;
  readonly hosts?: Hosts;
}

/** A throw-away certificate authority that writes what it issues into a directory. */
export class Authority {
  /** Path of the authority's own certificate. */
  readonly cert: string;
  readonly #dir: string;
  readonly #name: string;
  readonly #authority: CertificateAuthority;
  #issued = 0;

  private constructor(dir: string, name: string, cert: string, authority: CertificateAuthority) {
    this.cert = cert;
    this.#dir = dir;
    this.#name = name;
    this.#authority = authority;
  }

  /** @param name becomes part of its subject and of its file names. */
  static async create(dir: string, name: string): Promise<Authority> {
    const authority = await CertificateAuthority.create(`${name} authority`, DAY_MS);
    const path = join(dir, `${name}-ca.pem`);
    await writeFile(path, authority.cert);
    return new Authority(dir, name, path, authority);
  }

  /** A certificate for localhost, 127.0.0.1 and ::1, good for servers and clients. */
  server(options: IdentityOptions = {}): Promise<Identity> {
    return this.#issue('localhost', { hosts: LOOPBACK, ...options });
  }

  /** A client's certificate; good for clients alone. */
  client(commonName: string, options: IdentityOptions = {}): Promise<Identity> {
    return this.#issue(commonName, options);
  }

  /** A client's certificate that ran out a minute ago. */
  expired(commonName: string): Promise<Identity> {
    return this.#issue(commonName, { validMs: -60_000 });
  }

  /** A client's certificate of another authority that bears the same name. */
  async foreign(commonName: string): Promise<Identity> {
    const impostor = await this.#authority.impostor();
    return new Authority(this.#dir, `${this.#name}-foreign`, this.cert, impostor).client(commonName);
  }

  async #issue(commonName: string, { validMs = DAY_MS, hosts }: IdentityOptions): Promise<Identity> {
    const { cert, key } = await this.#authority.issue({ commonName, validMs, hosts });
    const stem = join(this.#dir, `${this.#name}-${this.#issued++}`);
    const identity = { cert: `${stem}.pem`, key: `${stem}-key.pem` };
    await writeFile(identity.cert, cert);
    await writeFile(identity.key, key, { mode: 0o600 });
    return identity;
  }
}
