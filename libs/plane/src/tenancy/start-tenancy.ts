import { basename, dirname, resolve } from 'node:path';
import {
  ADMISSION,
  type Admission,
  problemText,
  readCallerTokens,
  startAdmission,
  type Tenant,
} from '@isthmus/admission';
import { type ServerValues, tlsPolicy } from '@isthmus/flags';
import { LruMap, type ReadTls, secureContextOptions, TlsRenewal, type TlsSettings } from '@isthmus/runtime';
import type { Closing } from '@isthmus/service';
import { type FollowedTls, type FollowTls, type TlsChoice, tlsChoice } from '@isthmus/transport';
import type { PlaneEvents } from '@isthmus/tunnel';
import { PLANE } from '../defaults.ts';
import type { Tenancy } from '../roles.ts';
import { tenantViews } from './views.ts';

interface TenancyParts {
  readonly closing: Closing;
  readonly events: PlaneEvents;
  /** How often files are checked for changes, in milliseconds. Default: tenants' files every 2 s, the files that they name every 4 s. */
  readonly pollMs?: number | undefined;
}

type TenancyFlags = Pick<ServerValues, 'tenants-dir' | 'cipher-suites' | 'tls-min-version'> &
  // A gateway has no flags of agents, nor a hub of callers.
  Partial<Pick<ServerValues, 'cluster-ca-cert' | 'server-ca-cert' | 'token-review-cache-ttl'>>;

/**
 * Follows the tenants of --tenants-dir.
 * @throws Error if the directory or one of the program's CA bundles cannot be read
 */
export async function startTenancy(flags: TenancyFlags, parts: TenancyParts): Promise<Tenancy> {
  const admission: Admission = await startAdmission({
    ...parts,
    dir: flags['tenants-dir'],
    bundles: { agent: flags['cluster-ca-cert'] ?? '', caller: flags['server-ca-cert'] ?? '' },
    rememberMs: flags['token-review-cache-ttl'] ?? ADMISSION.reviewsRememberedMs,
    tokensOf: [
      ...(flags['token-review-cache-ttl'] === undefined ? [] : (['agent'] as const)),
      ...(flags['server-ca-cert'] === undefined ? [] : (['caller'] as const)),
    ],
  });
  const { tenants } = admission;
  const choices = new TlsChoices(tlsPolicy(flags));
  admission.changed(({ changed, gone }) => choices.forget([...changed, ...gone]));
  return {
    ...admission,
    get problems() {
      return admission.problems;
    },
    views: tenantViews(admission),
    chooseTls(serverName) {
      const tenant = tenants.byServerName(serverName);
      return tenant && choices.of(tenant);
    },
    portTls(name, own) {
      const current = () => {
        const tenant = tenants.get(name);
        return tenant && certificateOf(tenant);
      };
      return portTls({ current, changed: admission.changed, own });
    },
  };
}

type CallerTokenFlags = Pick<ServerValues, 'caller-token-file' | 'server-ca-cert' | 'uds-name'>;

/**
 * Follows --caller-token-file: says who the callers of a server without tenants are, all of tenant `default`.
 * @throws Error if it cannot be used
 */
export async function startCallerTokens(flags: CallerTokenFlags, parts: TenancyParts): Promise<Admission> {
  const { 'server-ca-cert': authorities, 'uds-name': unixSocket } = flags;
  const file = resolve(flags['caller-token-file']);
  const others = [
    // --server-ca-cert verifies, because no CA is named here.
    ...(authorities === '' ? [] : [{ certificates: {} }]),
    ...(unixSocket === '' ? [] : [{ unixSocket }]),
  ];
  const admission = await startAdmission({
    ...parts,
    dir: dirname(file),
    only: { name: basename(file), read: (source) => readCallerTokens(source, others) },
    bundles: { agent: '', caller: authorities },
    rememberMs: ADMISSION.reviewsRememberedMs,
    tokensOf: [],
  });
  for (const { problems } of admission.problems)
    for (const problem of problems) throw new Error(`--caller-token-file: ${problemText(file, problem)}`);
  return admission;
}

/** A certificate with its chain, and its key. PEM. */
export interface CertificateTexts {
  readonly cert: string;
  readonly key: string;
}

/** Returns the tenant's certificate, or undefined if it has none. */
export function certificateOf({ credentials }: Tenant): CertificateTexts | undefined {
  const [cert, key] = [credentials.text('server.certificate'), credentials.text('server.key')];
  return cert === undefined || key === undefined ? undefined : { cert, key };
}

interface Ready {
  /** The credentials that it was made from. */
  readonly of: Tenant['credentials'];
  readonly choice: TlsChoice;
}

/** Tenants' server certificates, each made ready when a peer first asks for it. */
export class TlsChoices {
  readonly #policy: Parameters<typeof tlsChoice>[1];
  readonly #ready = new LruMap<string, Ready>(PLANE.readyCertificates);

  constructor(policy: Parameters<typeof tlsChoice>[1]) {
    this.#policy = policy;
  }

  /** Undefined if the tenant has no certificate. */
  of(tenant: Tenant): TlsChoice | undefined {
    const { name, credentials } = tenant;
    const ready = this.#ready.get(name);
    if (ready?.of === credentials) return ready.choice;
    this.#ready.delete(name);
    const texts = certificateOf(tenant);
    if (!texts) return undefined;
    const choice = tlsChoice(texts, this.#policy);
    this.#ready.set(name, { of: credentials, choice });
    return choice;
  }

  /** Forgets tenants that have changed, or are gone. */
  forget(tenants: Iterable<string>): void {
    for (const tenant of tenants) this.#ready.delete(tenant);
  }
}

export interface PortTlsOptions {
  /** The certificate of the tenant's file, as it is in force. Undefined if the file names none, or if there is no such tenant now. */
  readonly current: () => CertificateTexts | undefined;
  /** Calls the listener after each change of tenants. @returns a function that stops this */
  readonly changed: (listener: () => void) => () => void;
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
    this.#unwatch ??= this.#options.changed(() => this.#look());
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
