import { constants, createPrivateKey, X509Certificate } from 'node:crypto';
import { createServer, type Server, type TlsOptions } from 'node:tls';
import type { CertificatePlace, PlaneEvents } from '@isthmus/tunnel';
import { admit, type Doors } from '../listen/admit.ts';
import { describe } from './certificate.ts';
import { withIssuers } from './issuers.ts';
import { type ReadTls, secureContextOptions, type TlsSettings, textOf } from './tls.ts';

/**
 * How often files are looked at, in milliseconds. Three small reads; to be told of a change instead (inotify) is not sure where files
 * are links into a directory that is replaced, as those of a mounted Secret are.
 */
const LOOK_EVERY = 10_000;

/**
 * Nobody resumes: an API server's and a Go agent's Go has no cache for it, our agents may come with a new certificate. A ticket
 * would hold the peer's certificate, and OpenSSL makes and reads back two for each connection: a third of a handshake. (With
 * TLS 1.3 two are sent all the same, but with nothing in them.)
 */
const NO_TICKETS = constants.SSL_OP_NO_TICKET;

export interface CertificateOptions {
  /** Where it is shown. */
  readonly where: CertificatePlace;
  readonly files: TlsSettings;
  /** Told until when the certificate in force is valid, whenever that is another, and of files that cannot be used. */
  readonly events: PlaneEvents;
}

/**
 * A TLS server that shows new connections what its files say by now. While they cannot be used, such as one of two that are being
 * renewed, it goes on with what it had. With authorities among its files it asks for a client's certificate.
 * @throws the file system's error for a file that cannot be read, OpenSSL's for one that holds no such thing
 */
export function tlsServer(certificate: CertificateOptions, options: TlsOptions, doors: Omit<Doors, 'fault'>): Server {
  const asks = Boolean(certificate.files.ca);
  const first = secureContextOptions(certificate.files);
  check(first, certificate.files);
  const shown = (read: ReadTls) => ({ ...options, ...read, cert: withIssuers(read), secureOptions: NO_TICKETS });
  const server = createServer({ ...shown(first), requestCert: asks, rejectUnauthorized: false });
  const { where, events } = certificate;
  admit(server, asks, { ...doors, fault: (remote, error) => events.emit('fault', where, remote, error) });
  const renewal = new Renewal(certificate, (read) => server.setSecureContext(shown(read)));
  renewal.begin(first);
  // It may listen again after it was closed.
  server.on('listening', () => renewal.watch());
  server.on('close', () => renewal.stop());
  return server;
}

/**
 * Tells of a certificate that is shown to servers: `secureContext` reads it for each connection anyway, but such connections may
 * last for months. Without a certificate it does nothing.
 * @returns ends it
 */
export function watchCertificate(certificate: CertificateOptions): () => void {
  if (!certificate.files.cert) return () => {};
  const renewal = new Renewal(certificate, () => {});
  renewal.look();
  renewal.watch();
  return () => renewal.stop();
}

/** The files of one certificate, and what they said when they could last be used. */
class Renewal {
  readonly #certificate: CertificateOptions;
  readonly #use: (read: ReadTls) => void;
  #inForce = '';
  /** What was told of files that cannot be used. */
  #told = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(certificate: CertificateOptions, use: (read: ReadTls) => void) {
    this.#certificate = certificate;
    this.#use = use;
  }

  /** With what is in force already. */
  begin(read: ReadTls): void {
    this.#inForce = textOf(read);
    this.#tell(read);
  }

  watch(): void {
    this.#timer ??= setInterval(() => this.look(), LOOK_EVERY).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  look(): void {
    const { files, where, events } = this.#certificate;
    try {
      const read = secureContextOptions(files);
      const text = textOf(read);
      if (text !== this.#inForce) {
        check(read, files);
        this.#use(read);
        this.#inForce = text;
        this.#tell(read);
      }
      this.#told = '';
    } catch (error) {
      const { message } = error as Error;
      if (message !== this.#told) events.emit('certificate:failure', where, error as Error);
      this.#told = message;
    }
  }

  #tell({ cert }: ReadTls): void {
    const { where, events } = this.#certificate;
    const leaf = new X509Certificate(cert as Buffer);
    const about = { name: describe(leaf), validFrom: Date.parse(leaf.validFrom) };
    events.emit('certificate', where, Date.parse(leaf.validTo), about);
  }
}

/**
 * Deno takes any pair, with which every handshake fails; and Node takes a file without authorities, such as one that is being
 * written, with which every client is refused.
 */
function check({ cert, key, ca }: ReadTls, files: TlsSettings): void {
  const leaf = parsed(cert, files.cert);
  if (ca !== undefined) parsed(ca, files.ca);
  if (!leaf.checkPrivateKey(createPrivateKey(key as Buffer))) {
    throw new Error(`the key in ${files.key} is not the one of the certificate in ${files.cert}`);
  }
}

function parsed(pem: Buffer | undefined, path: string | undefined): X509Certificate {
  try {
    return new X509Certificate(pem as Buffer);
  } catch (cause) {
    throw new Error(`there is no certificate (PEM) in ${path}`, { cause });
  }
}
