import { basename, dirname, resolve } from 'node:path';
import type { SecureContext } from 'node:tls';
import {
  ADMISSION,
  type Admission,
  problemText,
  readCallerTokens,
  startAdmission,
  type Tenant,
} from '@isthmus/admission';
import { ownPlaces, type ServerValues, tlsPolicy } from '@isthmus/flags';
import { getOrPut, LruMap } from '@isthmus/runtime';
import type { Closing } from '@isthmus/service';
import { tlsChoice } from '@isthmus/transport';
import type { PlaneEvents } from '@isthmus/tunnel';
import { PLANE } from '../defaults.ts';
import type { Tenancy } from '../roles.ts';
import { tenantViews } from './views.ts';

interface TenancyParts {
  readonly closing: Closing;
  readonly events: PlaneEvents;
}

type TenancyFlags = Pick<ServerValues, 'tenants-dir' | 'cipher-suites' | 'tls-min-version'> &
  // A gateway has no flags of agents, nor a hub of callers.
  Partial<Pick<ServerValues, 'cluster-ca-cert' | 'server-ca-cert' | 'token-review-cache-ttl'>> &
  Partial<Parameters<typeof ownPlaces>[0]>;

/**
 * Follows the tenants of --tenants-dir.
 * @throws Error if the directory or one of the program's CA bundles cannot be read
 */
export async function startTenancy(flags: TenancyFlags, parts: TenancyParts): Promise<Tenancy> {
  const admission: Admission = await startAdmission({
    ...parts,
    dir: flags['tenants-dir'],
    bundles: { agent: flags['cluster-ca-cert'] ?? '', caller: flags['server-ca-cert'] ?? '' },
    own: ownPlacesOf(flags),
    rememberMs: flags['token-review-cache-ttl'] ?? ADMISSION.reviewsRememberedMs,
    tokensOf: [
      ...(flags['token-review-cache-ttl'] === undefined ? [] : (['agent'] as const)),
      ...(flags['server-ca-cert'] === undefined ? [] : (['caller'] as const)),
    ],
  });
  const { tenants } = admission;
  const policy = tlsPolicy(flags);
  /** By tenant. Each is made ready when a peer first asks for it. */
  const choices = new LruMap<string, SecureContext>(PLANE.readyCertificates);
  admission.changed(({ changed, gone }) => {
    for (const name of [...changed, ...gone]) choices.delete(name);
  });
  return {
    ...admission,
    get problems() {
      return admission.problems;
    },
    views: tenantViews(admission),
    chooseTls(serverName) {
      const tenant = tenants.byServerName(serverName);
      const texts = tenant && certificateOf(tenant);
      return texts && getOrPut(choices, tenant.name, () => tlsChoice(texts, policy));
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

/** Those of a hub. A gateway alone has none: it passes nothing on. */
function ownPlacesOf(flags: TenancyFlags): ReturnType<typeof ownPlaces> | undefined {
  const { 'cluster-cert': cert, 'advertise-agent-address': agents, 'advertise-address': peers } = flags;
  if (cert === undefined || agents === undefined || peers === undefined) return undefined;
  const advertised = { 'advertise-agent-address': agents, 'advertise-address': peers };
  return ownPlaces({ ...flags, ...advertised, 'cluster-cert': cert });
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

/** Returns the tenant's certificate with its chain, and its key, as PEM; undefined if it has none. */
function certificateOf({ credentials }: Tenant): { readonly cert: string; readonly key: string } | undefined {
  const [cert, key] = [credentials.file('server.certificate').text, credentials.file('server.key').text];
  return cert === undefined || key === undefined ? undefined : { cert, key };
}
