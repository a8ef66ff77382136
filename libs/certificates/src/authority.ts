import 'reflect-metadata';
import type { webcrypto } from 'node:crypto';
import * as x509 from '@peculiar/x509';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const RSA = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' };
const HOUR_MS = 3_600_000;

export type Hosts = x509.JsonGeneralNames;

/** The names and addresses of this machine on loopback. */
export const LOOPBACK: Hosts = [
  { type: 'dns', value: 'localhost' },
  { type: 'ip', value: '127.0.0.1' },
  { type: 'ip', value: '::1' },
];

/** PEM texts. */
export interface IdentityTexts {
  readonly cert: string;
  readonly key: string;
}

export interface IssueOptions {
  /** Empty for a certificate without a subject, which only its other names identify. */
  readonly commonName: string;
  /** When it expires, in milliseconds from now. */
  readonly validMs: number;
  /** When it becomes valid, in milliseconds from now. Default: two hours ago. */
  readonly notBeforeMs?: number | undefined;
  /** The DNS names and addresses that it is for. */
  readonly hosts?: Hosts | undefined;
  /** What it may be used for. Default: a server if `hosts` is set, otherwise a client. */
  readonly uses?: readonly Use[] | undefined;
}

export type Use = 'client' | 'server';

const PURPOSES = { client: x509.ExtendedKeyUsage.clientAuth, server: x509.ExtendedKeyUsage.serverAuth };

/** A certificate authority whose key is in memory. It uses ECDSA on P-256, which every TLS 1.2 and 1.3 peer of a plane accepts. */
export class CertificateAuthority {
  /** Its own certificate, as PEM. */
  readonly cert: string;
  readonly #commonName: string;
  readonly #keys: webcrypto.CryptoKeyPair;
  /** Names its key in what it issues, because authorities of many clusters have one name (RFC 5280 section 4.2.1.1). */
  readonly #keyId: x509.AuthorityKeyIdentifierExtension;

  private constructor(
    commonName: string,
    cert: string,
    keys: webcrypto.CryptoKeyPair,
    keyId: x509.AuthorityKeyIdentifierExtension,
  ) {
    this.#commonName = commonName;
    this.cert = cert;
    this.#keys = keys;
    this.#keyId = keyId;
  }

  static async create(commonName: string, validMs: number): Promise<CertificateAuthority> {
    const keys = await newKeys();
    return CertificateAuthority.#of(commonName, keys, validMs);
  }

  static async #of(commonName: string, keys: webcrypto.CryptoKeyPair, validMs: number): Promise<CertificateAuthority> {
    const certificate = await signItself(commonName, keys, validMs, [
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ]);
    return new CertificateAuthority(commonName, pemOf(certificate), keys, await keyIdOf(keys));
  }

  /** Returns it with another certificate of the same name and key. */
  renewed(validMs: number): Promise<CertificateAuthority> {
    return CertificateAuthority.#of(this.#commonName, this.#keys, validMs);
  }

  /** Returns an authority below this one. @param pathLength how many authorities may stand below it. Unset: any number */
  async subordinate(commonName: string, validMs: number, pathLength?: number): Promise<CertificateAuthority> {
    const keys = await newKeys();
    const certificate = await this.#sign(commonName, keys, { validMs }, [
      new x509.BasicConstraintsExtension(true, pathLength, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ]);
    return new CertificateAuthority(commonName, certificate, keys, await keyIdOf(keys));
  }

  /** Returns an authority with the same name and certificate, but with a key that does not match, as an impostor has. */
  async impostor(): Promise<CertificateAuthority> {
    return new CertificateAuthority(this.#commonName, this.cert, await newKeys(), this.#keyId);
  }

  /** Returns its private key, as PEM. */
  key(): Promise<string> {
    return privateKeyPem(this.#keys);
  }

  async issue(options: IssueOptions): Promise<IdentityTexts> {
    const { commonName, hosts, uses = [hosts ? 'server' : 'client'] } = options;
    const keys = await newKeys();
    const purposes = uses.map((use) => PURPOSES[use]);
    const cert = await this.#sign(commonName, keys, options, [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      ...(purposes.length > 0 ? [new x509.ExtendedKeyUsageExtension(purposes)] : []),
      ...(hosts ? [new x509.SubjectAlternativeNameExtension(hosts)] : []),
    ]);
    return { cert, key: await privateKeyPem(keys) };
  }

  /** Issues a revocation list, as PEM. @param certificates the revoked ones, as PEM @param validMs when the next list is due */
  async revoke(certificates: readonly string[], validMs: number): Promise<string> {
    const list = await x509.X509CrlGenerator.create({
      issuer: `CN=${this.#commonName}`,
      thisUpdate: new Date(Date.now() - 2 * HOUR_MS),
      nextUpdate: new Date(Date.now() + validMs),
      entries: certificates.map((each) => ({ serialNumber: new x509.X509Certificate(each).serialNumber })),
      signingAlgorithm: ALGORITHM,
      signingKey: this.#keys.privateKey,
    });
    return pemText(x509.PemConverter.encode(list.rawData, 'X509 CRL'));
  }

  async #sign(
    commonName: string,
    { publicKey }: webcrypto.CryptoKeyPair,
    { validMs, notBeforeMs }: Pick<IssueOptions, 'validMs' | 'notBeforeMs'>,
    extensions: readonly x509.Extension[],
  ): Promise<string> {
    const certificate = await x509.X509CertificateGenerator.create({
      serialNumber: crypto.randomUUID().replaceAll('-', ''),
      subject: nameOf(commonName),
      issuer: `CN=${this.#commonName}`,
      ...validity(validMs, notBeforeMs),
      signingAlgorithm: ALGORITHM,
      publicKey,
      signingKey: this.#keys.privateKey,
      extensions: [...extensions, this.#keyId],
    });
    return pemOf(certificate);
  }
}

/**
 * Issues a self-signed certificate for the loopback names, valid for a day, for a server or a client.
 * @param uses what the certificate may be used for. Unset: it has no such restriction
 * @param rsaBits the size of its RSA key. Unset: it has the usual key
 */
export async function selfSigned(commonName: string, uses?: readonly Use[], rsaBits?: number): Promise<IdentityTexts> {
  const keys = rsaBits === undefined ? await newKeys() : await newRsaKeys(rsaBits);
  const names = new x509.SubjectAlternativeNameExtension(LOOPBACK);
  const purposes = uses && new x509.ExtendedKeyUsageExtension(uses.map((use) => PURPOSES[use]));
  const certificate = await signItself(commonName, keys, 24 * HOUR_MS, [names, ...(purposes ? [purposes] : [])]);
  return { cert: pemOf(certificate), key: await privateKeyPem(keys) };
}

function signItself(
  commonName: string,
  keys: webcrypto.CryptoKeyPair,
  validMs: number,
  extensions: readonly x509.Extension[],
) {
  return x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: '01',
    name: nameOf(commonName),
    ...validity(validMs),
    signingAlgorithm: keys.publicKey.algorithm.name === RSA.name ? RSA : ALGORITHM,
    keys,
    extensions: [new x509.BasicConstraintsExtension(true, undefined, true), ...extensions],
  });
}

function keyIdOf({ publicKey }: webcrypto.CryptoKeyPair): Promise<x509.AuthorityKeyIdentifierExtension> {
  return x509.AuthorityKeyIdentifierExtension.create(publicKey);
}

function nameOf(commonName: string): string {
  return commonName && `CN=${commonName}`;
}

async function privateKeyPem({ privateKey }: webcrypto.CryptoKeyPair): Promise<string> {
  return pemText(x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', privateKey), 'PRIVATE KEY'));
}

function newKeys(): Promise<webcrypto.CryptoKeyPair> {
  return crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
}

function newRsaKeys(modulusLength: number): Promise<webcrypto.CryptoKeyPair> {
  const algorithm = { ...RSA, modulusLength, publicExponent: Uint8Array.of(1, 0, 1) };
  return crypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
}

/** The default start is two hours ago, for peers whose clocks are behind, and so that an expired certificate was once valid. */
function validity(validMs: number, notBeforeMs = -2 * HOUR_MS): { notBefore: Date; notAfter: Date } {
  return { notBefore: new Date(Date.now() + notBeforeMs), notAfter: new Date(Date.now() + validMs) };
}

/** With a line's end, so that `cat` makes a bundle of two. */
function pemText(pem: string): string {
  return `${pem.trimEnd()}\n`;
}

function pemOf(certificate: x509.X509Certificate): string {
  return pemText(certificate.toString('pem'));
}
