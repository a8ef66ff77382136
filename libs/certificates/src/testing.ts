import { generateKeyPairSync, randomBytes } from 'node:crypto';
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

/** What makes each certificate of a chain cost milliseconds to verify. */
export type CostlyKind = 'rsa' | 'dsa';

/**
 * Makes what an attacker without any credential shows: a chain of certificates whose keys and signatures are random numbers, chosen so that
 * finding each signature false takes as long as possible. Only the first one has a real key.
 * @param count how many certificates stand above the first one
 */
export function costlyChain(count: number, kind: CostlyKind = 'rsa'): IdentityTexts {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { keyOf, signature, signedWith } = kind === 'rsa' ? rsa : dsa;
  const chain = Array.from({ length: count + 1 }, (_, level) => {
    const key = level === 0 ? publicKey.export({ type: 'spki', format: 'der' }) : keyOf();
    const names = [name(`level ${level + 1}`), VALIDITY, name(`level ${level}`)];
    const signed = sequence(VERSION_3, integer(Buffer.from([1])), signedWith, ...names, key, AUTHORITY);
    return sequence(signed, signedWith, bits(signature()));
  });
  const cert = chain.map((der) => `-----BEGIN CERTIFICATE-----\n${lines(der)}\n-----END CERTIFICATE-----\n`).join('');
  return { cert, key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}

/** 3,072 bits are the most with which OpenSSL takes an exponent of more than 64. */
const rsa = {
  signedWith: sequence(identifier('2a864886f70d01010b'), Buffer.from([5, 0])),
  keyOf: () =>
    sequence(
      sequence(identifier('2a864886f70d010101'), Buffer.from([5, 0])),
      bits(sequence(integer(number(384)), integer(number(384, 0x7f)))),
    ),
  signature: () => number(384, 0x10),
};

/** 10,000 bits are the most that OpenSSL takes. */
const dsa = {
  signedWith: sequence(identifier('608648016503040302')),
  keyOf: () =>
    sequence(
      sequence(
        identifier('2a8648ce380401'),
        sequence(integer(number(1250)), integer(number(32)), integer(number(1249))),
      ),
      bits(integer(number(1249))),
    ),
  signature: () => sequence(integer(number(31)), integer(number(31))),
};

const VERSION_3 = element(0xa0, integer(Buffer.from([2])));
const VALIDITY = sequence(element(0x17, Buffer.from('200101000000Z')), element(0x17, Buffer.from('491231235959Z')));
/** Basic constraints, with an authority's flag. */
const AUTHORITY = element(
  0xa3,
  sequence(sequence(identifier('551d13'), element(4, sequence(element(1, Buffer.from([255])))))),
);

function element(tag: number, ...parts: readonly Buffer[]): Buffer {
  const value = Buffer.concat(parts);
  const { length } = value;
  const shown = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...shown]), value]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return element(0x30, ...parts);
}

function integer(value: Buffer): Buffer {
  return element(2, Buffer.concat([Buffer.alloc((value[0] as number) >> 7), value]));
}

function identifier(hex: string): Buffer {
  return element(6, Buffer.from(hex, 'hex'));
}

function bits(value: Buffer): Buffer {
  return element(3, Buffer.from([0]), value);
}

function name(commonName: string): Buffer {
  return sequence(element(0x31, sequence(identifier('550403'), element(0x0c, Buffer.from(commonName)))));
}

/** A random odd number. */
function number(bytes: number, first = 0xff): Buffer {
  const value = randomBytes(bytes);
  value[0] = first;
  value[bytes - 1] = (value[bytes - 1] as number) | 1;
  return value;
}

function lines(der: Buffer): string {
  return der.toString('base64').replace(/(.{64})/g, '$1\n');
}

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
