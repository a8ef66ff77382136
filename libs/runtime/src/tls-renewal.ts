import { createPrivateKey, X509Certificate } from 'node:crypto';
import { type Certificate, certificateOf } from './certificates/certificate.ts';
import { CertificatePool } from './certificates/pool.ts';
import { type ReadTls, secureContextOptions, type TlsSettings, textOf } from './tls-files.ts';

/**
 * How often the files are read, in milliseconds: as tenants' files are. Three small reads cost 0.1 ms. Notifications (inotify) are
 * unreliable where files are links into a directory that is replaced, as in a mounted Secret.
 */
const LOOK_EVERY = 2_000;

export interface TlsRenewalOptions {
  readonly files: TlsSettings;
  /** Called with each new content of the files that can be used. */
  readonly use: (read: ReadTls) => void;
  /** Called with each certificate that comes into force, the first too. */
  readonly inForce: (leaf: Certificate) => void;
  /** Called when the files cannot be used, or not as a whole, once for each different message in a row. */
  readonly failed: (error: Error) => void;
}

/** Watches the files of one certificate. While they cannot be used, the last usable content stays in force. */
export class TlsRenewal {
  readonly #options: TlsRenewalOptions;
  #inForce = '';
  #reported = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(options: TlsRenewalOptions) {
    this.#options = options;
  }

  /** Reads the files for the first time. Throws if they cannot be used. */
  begin(): ReadTls {
    const read = secureContextOptions(this.#options.files);
    this.#accept(read, () => {});
    return read;
  }

  watch(): void {
    this.#timer ??= setInterval(() => this.look(), LOOK_EVERY).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  look(): void {
    try {
      const read = secureContextOptions(this.#options.files);
      if (textOf(read) !== this.#inForce) this.#accept(read, this.#options.use);
      this.#reported = '';
    } catch (error) {
      const { message } = error as Error;
      if (message !== this.#reported) this.#options.failed(error as Error);
      this.#reported = message;
    }
  }

  #accept(read: ReadTls, use: (read: ReadTls) => void): void {
    const { files, inForce, failed } = this.#options;
    const leaf = usable(read, files);
    use(read);
    this.#inForce = textOf(read);
    if (leaf) inForce(leaf);
    for (const each of read.ca ? CertificatePool.of(read.ca).skipped : [])
      failed(new Error(`${files.ca}: ${each}: the others are used, this one is not`));
  }
}

/**
 * Returns the certificate, if there is one beside the authorities. Deno accepts a key of another certificate, and then every handshake fails. Node accepts a file without
 * authorities, such as one that is being written, and then every client is refused.
 */
function usable({ cert, key, ca }: ReadTls, files: TlsSettings): Certificate | undefined {
  if (ca !== undefined && CertificatePool.of(ca).all.length === 0) throw new Error(lack(files.ca));
  if (!files.cert) return undefined;
  const leaf = parsed(cert, files.cert);
  if (leaf.checkPrivateKey(createPrivateKey(key as Buffer))) return read(leaf.raw, files.cert);
  throw new Error(`the key in ${files.key} does not belong to the certificate in ${files.cert}`);
}

function parsed(pem: ReadTls['cert'], path: string | undefined): X509Certificate {
  try {
    return new X509Certificate(pem as Buffer);
  } catch (cause) {
    throw new Error(lack(path), { cause });
  }
}

function read(raw: Buffer, path: string | undefined): Certificate {
  try {
    return certificateOf(raw);
  } catch (cause) {
    throw new Error(`the certificate in ${path} is malformed: ${(cause as Error).message}`, { cause });
  }
}

function lack(path: string | undefined): string {
  return `there is no certificate (PEM) in ${path}`;
}
