import { type ReadTls, secureContextOptions, TlsRenewal, type TlsSettings } from '@isthmus/runtime';
import type { FollowedTls, FollowTls } from '@isthmus/transport';
import type { CertificateTexts } from './tls-choices.ts';

export interface PortTlsOptions {
  /** The certificate of the tenant's file, as it is in force. Undefined if the file names none, or if there is no such tenant now. */
  readonly current: () => CertificateTexts | undefined;
  /** Calls the listener after each change of tenants. @returns a function that stops this */
  readonly onChange: (listener: () => void) => () => void;
  /** The program's files: the certificate to show if the tenant has none, and the rules for all connections. */
  readonly own: TlsSettings;
}

/** The TLS of a tenant's own port. It always shows the same certificate as a shared port where a server name selects the tenant. */
export function portTls(options: PortTlsOptions): FollowTls {
  return (use, failed) => new PortTls(options, use, failed);
}

class PortTls implements FollowedTls {
  readonly #options: PortTlsOptions;
  readonly #use: (read: ReadTls) => void;
  readonly #failed: (error: Error) => void;
  #shown: CertificateTexts | undefined;
  /** Follows the program's files while the tenant has no certificate. */
  #program: TlsRenewal | undefined;
  #unwatch: (() => void) | undefined;

  constructor(options: PortTlsOptions, ...[use, failed]: Parameters<FollowTls>) {
    this.#options = options;
    this.#use = use;
    this.#failed = failed;
  }

  begin(): ReadTls {
    this.#shown = this.#options.current();
    return this.#read();
  }

  watch(): void {
    this.#unwatch ??= this.#options.onChange(() => this.#look());
    this.#program?.watch();
    this.#look();
  }

  stop(): void {
    this.#unwatch?.();
    this.#unwatch = undefined;
    this.#program?.stop();
  }

  #look(): void {
    const current = this.#options.current();
    if (current?.cert === this.#shown?.cert && current?.key === this.#shown?.key) return;
    this.#shown = current;
    try {
      this.#use(this.#read());
    } catch (error) {
      // The port goes on to show the last certificate.
      this.#failed(error as Error);
    }
    this.#program?.watch();
  }

  #read(): ReadTls {
    const { own } = this.#options;
    this.#program?.stop();
    this.#program = undefined;
    if (this.#shown) {
      const [cert, key] = [this.#shown.cert, this.#shown.key].map((pem) => Buffer.from(pem)) as [Buffer, Buffer];
      return { ...secureContextOptions({ ...own, cert: '', key: '' }), cert, key };
    }
    const [use, failed] = [this.#use, this.#failed];
    this.#program = new TlsRenewal({ files: own, use, failed, inForce() {} });
    return this.#program.begin();
  }
}
