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
import { LruMap } from '@isthmus/runtime';
import type { Closing } from '@isthmus/service';
import { type TlsChoice, tlsChoice } from '@isthmus/transport';
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
    certificateOf(name) {
      const current = () => {
        const tenant = tenants.get(name);
        return tenant && certificateOf(tenant);
      };
      return { current, changed: admission.changed };
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
