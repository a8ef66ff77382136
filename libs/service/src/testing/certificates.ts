import 'reflect-metadata';
import type { webcrypto } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as x509 from '@peculiar/x509';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const HOUR_MS = 3_600_000;
const HOSTS: x509.JsonGeneralNames = [
  { type: 'dns', value: 'localhost' },
  { type: 'ip', value: '127.0.0.1' },
  { type: 'ip', value: '::1' },
];

/** Paths of PEM files. */
export interface Identity {
  readonly cert: string;
  readonly key: string;
}

export interface IdentityOptions {
  /** When it stops being valid, in milliseconds from now; default in a day, which lets tests move clocks. */
  readonly validMs?: number;
  readonly hosts?: x509.JsonGeneralNames;
}

/** A throw-away certificate authority that writes what it issues into a directory. */
export class Authority {
  /** Path of the authority's own certificate. */
  readonly cert: string;
  readonly #dir: string;
  readonly #name: string;
  readonly #keys: webcrypto.CryptoKeyPair;
  #issued = 0;

  private constructor(dir: string, name: string, cert: string, keys: webcrypto.CryptoKeyPair) {
    this.cert = cert;
    this.#dir = dir;
    this.#name = name;
    this.#keys = keys;
  }

  /** @param name becomes part of its subject and of its file names. */
  static async create(dir: string, name: string): Promise<Authority> {
    const keys = await newKeys();
    const certificate = await signItself(`${name} authority`, keys, [
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ]);
    const path = join(dir, `${name}-ca.pem`);
    await writeFile(path, certificate.toString('pem'));
    return new Authority(dir, name, path, keys);
  }

  /** A certificate for localhost, 127.0.0.1 and ::1, good for servers and clients. */
  server(options: IdentityOptions = {}): Promise<Identity> {
    return this.#issue('localhost', { hosts: HOSTS, ...options });
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
    const impostor = new Authority(this.#dir, `${this.#name}-foreign`, this.cert, await newKeys());
    return impostor.#issue(commonName, {}, this.#name);
  }

  async #issue(commonName: string, options: IdentityOptions, issuer = this.#name): Promise<Identity> {
    const { validMs = 24 * HOUR_MS, hosts } = options;
    const keys = await newKeys();
    const purposes = [x509.ExtendedKeyUsage.clientAuth, ...(hosts ? [x509.ExtendedKeyUsage.serverAuth] : [])];
    const certificate = await x509.X509CertificateGenerator.create({
      serialNumber: crypto.randomUUID().replaceAll('-', ''),
      subject: `CN=${commonName}`,
      issuer: `CN=${issuer} authority`,
      ...validity(validMs),
      signingAlgorithm: ALGORITHM,
      publicKey: keys.publicKey,
      signingKey: this.#keys.privateKey,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension(purposes),
        ...(hosts ? [new x509.SubjectAlternativeNameExtension(hosts)] : []),
      ],
    });
    const stem = join(this.#dir, `${this.#name}-${this.#issued++}`);
    const identity = { cert: `${stem}.pem`, key: `${stem}-key.pem` };
    await writeFile(identity.cert, certificate.toString('pem'));
    await writeFile(identity.key, await privateKeyPem(keys), { mode: 0o600 });
    return identity;
  }
}

/** PEM texts. */
export interface IdentityTexts {
  readonly cert: string;
  readonly key: string;
}

/** A certificate without an authority, good for a server on the loopback addresses and for a client. */
export async function selfSigned(commonName: string): Promise<IdentityTexts> {
  const keys = await newKeys();
  const certificate = await signItself(commonName, keys, [new x509.SubjectAlternativeNameExtension(HOSTS)]);
  return { cert: certificate.toString('pem'), key: await privateKeyPem(keys) };
}

function signItself(commonName: string, keys: webcrypto.CryptoKeyPair, extensions: readonly x509.Extension[]) {
  return x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: '01',
    name: `CN=${commonName}`,
    ...validity(24 * HOUR_MS),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [new x509.BasicConstraintsExtension(true, undefined, true), ...extensions],
  });
}

async function privateKeyPem({ privateKey }: webcrypto.CryptoKeyPair): Promise<string> {
  return x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', privateKey), 'PRIVATE KEY');
}

function newKeys(): Promise<webcrypto.CryptoKeyPair> {
  return crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
}

/** Began two hours ago, so that what has expired was valid once. */
function validity(validMs: number): { notBefore: Date; notAfter: Date } {
  return { notBefore: new Date(Date.now() - 2 * HOUR_MS), notAfter: new Date(Date.now() + validMs) };
}
