import { type ReadTls, secureContextOptions, TlsRenewal, type TlsSettings } from '@isthmus/runtime';
import type { FollowedTls, FollowTls } from '@isthmus/transport';
import type { CertificateTexts } from './tls-choices.ts';

export interface PortTlsOptions {
  /** The certificate of the tenant's file, as it is in force. Undefined: it names none, or there is no such tenant now. */
  readonly current: () => CertificateTexts | undefined;
  /** Calls after each change of tenants. @returns stops */
  readonly onChange: (listener: () => void) => () => void;
  /** The program's files: what is shown without a certificate of the tenant's, and what connections must meet. */
  readonly own: TlsSettings;
}

/** What a tenant's own port shows: the same certificate, from the same moment on, as where a server name selects the tenant. */
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
      // What was shown last still is.
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
