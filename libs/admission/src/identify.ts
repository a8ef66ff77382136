import type { Certificate, Presented } from '@isthmus/runtime';
import { NotAuthorised, type Principal } from '@isthmus/tunnel';
import { type CertificateBundles, CertificateJudge, gatewayTenants } from './certificate-judge.ts';
import type { Grant, Grants, Proven } from './grants.ts';
import { beginsAsPassword, isEntryOf, type Password, passwordId } from './passwords.ts';
import type { Tenant, Tenants } from './tenants.ts';

/** What a connection shows of who its peer is. */
export interface Evidence {
  /** The tenant whose own port or unix socket it came in by. */
  readonly tenant?: string;
  /** SNI. */
  readonly serverName?: string;
  /** That the peer holds its key is proven; nothing else is. */
  readonly certificate?: Presented;
}

/** A token, and who shows it. */
export interface ShownToken {
  /** Without `Bearer`. */
  readonly token: string;
  /** Where its bearer comes from, as limits count it. */
  readonly source: string;
  /** Aborts when its bearer has gone. */
  readonly signal: AbortSignal;
}

export interface AgentEvidence extends Evidence, Omit<ShownToken, 'token'> {
  /** Without `Bearer`. */
  readonly token?: string;
  /** The tenant that the agent says it is of. It narrows the search, and must be the principal's. */
  readonly claimedTenant?: string;
}

export interface CallerEvidence extends Evidence {
  /** The unix socket that the caller came in by, as the tenant's file has it. */
  readonly unixSocket?: string;
  /** The tenant's own port that it came in by. */
  readonly port?: number;
}

export interface CallerTokenEvidence extends CallerEvidence, ShownToken {
  /** The tenant that the caller says it is of: the user of Basic. It narrows the search, and must be the principal's. */
  readonly claimedTenant?: string;
  /** Called before what costs more than nothing is verified. Resolves when it may be, and rejects if its source has shown too many wrong tokens. */
  readonly waitToVerify?: () => Promise<void>;
}

/** Verifies tokens of agents, or of callers. */
export interface TokenJudge {
  /**
   * @param among the only tenant that it may be of. Unset: its issuer and its key's id find the tenant
   * Rejects with NotAuthorised, `undecided` if the API server that decides did not answer.
   */
  judge(evidence: ShownToken, among: Tenant | undefined): Promise<Proven>;
}

/** Says who peers are, by the tenants' files and credentials. */
export interface Identify {
  /** Rejects with NotAuthorised if the agent has proven no tenant, and with AgentLimitError-like errors of a token review that is refused. */
  agent(evidence: AgentEvidence): Promise<Grant>;
  /** @throws NotAuthorised if the caller has proven no tenant */
  caller(evidence: CallerEvidence): Grant;
  /** Who a caller is by its token, whatever else it shows. Rejects with NotAuthorised, or as `waitToVerify` */
  callerToken(evidence: CallerTokenEvidence): Promise<Grant>;
  /** The tenants for which a gateway with this certificate may dial. Undefined: for all. */
  gateway(certificate: Certificate): ReadonlySet<string> | undefined;
}

export interface IdentifyOptions {
  readonly tenants: Tenants;
  readonly grants: Grants;
  /** Of agents, and of callers. Unset: none comes in by an issuer's token. */
  readonly tokens?: { readonly [Role in Principal['role']]?: TokenJudge | undefined };
  /** The program's own CA bundles, which verify SPIFFE IDs. */
  readonly bundles: CertificateBundles;
  /** Whether there are no tenants' files: the only file is --caller-token-file, and refusals point to no other. */
  readonly alone?: boolean | undefined;
}

/**
 * A peer's tenant is the one of its own port or unix socket, else that of its server name (SNI), of its SPIFFE ID, of the authority that
 * issued its certificate, or of its token. Hints that contradict each other refuse it.
 */
export function identifyBy({ tenants, grants, tokens, bundles, alone = false }: IdentifyOptions): Identify {
  const certificates = new CertificateJudge(tenants, bundles);
  const granted = (role: Principal['role'], { tenant, name, rule, shared, validity }: Proven) =>
    grants.grant({ tenant: tenant.name, role, name, rule, ...(shared && { shared }) }, tenant, validity);
  return {
    async agent(evidence) {
      const hinted = hintedTenant(tenants, evidence);
      const { certificate, token } = evidence;
      // Agents of earlier versions say `default` of themselves without being told to.
      const untold = evidence.claimedTenant === 'default' && !tenants.get('default');
      const claimedTenant = untold ? undefined : evidence.claimedTenant;
      if (certificate)
        return claimed(granted('agent', certificates.judge('agent', certificate, hinted)), claimedTenant);
      if (token === undefined || !tokens?.agent) throw nothingShown(evidence, hinted, 'agent');
      const among = hinted ?? (claimedTenant === undefined ? undefined : knownTenant(tenants, claimedTenant));
      return claimed(granted('agent', await tokens.agent.judge({ ...evidence, token }, among)), claimedTenant);
    },
    caller(evidence) {
      const hinted = hintedTenant(tenants, evidence);
      const { certificate } = evidence;
      if (certificate) return granted('caller', certificates.judge('caller', certificate, hinted));
      const way = hinted && ownWay(hinted, evidence);
      if (!way && alone) throw new NotAuthorised(`the caller showed no ${CERTIFICATE_AND_TOKEN}`, { challenge: true });
      // Its own port or socket is known to be a tenant's; a server name must not tell whether it is one's.
      const own = evidence.tenant === undefined ? undefined : hinted;
      if (!way) throw nothingShown(evidence, hinted, 'caller', own?.takesTokens ?? tenants.takeTokens);
      return granted('caller', way);
    },
    async callerToken(evidence) {
      const hinted = hintedTenant(tenants, evidence);
      const { claimedTenant, token, waitToVerify } = evidence;
      if (alone && claimedTenant !== undefined && !tenants.get(claimedTenant))
        throw new NotAuthorised(`there is no tenant ${claimedTenant} here: show the token alone, as Bearer`);
      const among = claimedTenant === undefined ? hinted : knownTenant(tenants, claimedTenant);
      if (hinted && among !== hinted)
        throw new NotAuthorised(
          `this way in is of tenant ${hinted.name}, but the caller says that it is of tenant ${claimedTenant}: connect to that tenant's address`,
          { rule: `${hinted.path}: callers` },
        );
      const known = passwordProof(tenants, token);
      if (known) {
        if (!among || known.tenant === among) return granted('caller', known);
        throw new NotAuthorised(`the token is not one of tenant ${among.name}`, { rule: `${among.path}: callers` });
      }
      if (!beginsAsPassword(token) && tokens?.caller && (among?.takesTokens ?? true)) {
        await waitToVerify?.();
        return granted('caller', { ...(await tokens.caller.judge(evidence, among)), shared: false });
      }
      throw new NotAuthorised(
        `the token was not accepted: ${alone ? whyUnknown(token, undefined, 'of this server') : whyUnknown(token, among)}`,
        among && { rule: `${among.path}: callers` },
      );
    },
    gateway: gatewayTenants,
  };
}

/** The tenant that the way in selects: proof of nothing yet, unless it is a caller's own socket or port. */
function hintedTenant(tenants: Tenants, { tenant, serverName }: Evidence): Tenant | undefined {
  const bySni = serverName === undefined ? undefined : tenants.byServerName(serverName);
  if (tenant === undefined) return bySni;
  const own = knownTenant(tenants, tenant);
  if (!bySni || bySni === own) return own;
  throw new NotAuthorised(
    `this way in is of tenant ${tenant}, but the server name ${serverName} is of tenant ${bySni.name}: connect to that tenant's address`,
    { rule: `${bySni.path}: server.serverNames` },
  );
}

function knownTenant(tenants: Tenants, name: string): Tenant {
  const found = tenants.get(name);
  if (found) return found;
  throw new NotAuthorised(`there is no tenant ${name}: add its file to the directory of tenants`);
}

function claimed(grant: Grant, tenant: string | undefined): Grant {
  const { principal } = grant;
  if (tenant === undefined || tenant === principal.tenant) return grant;
  throw new NotAuthorised(
    `the agent says that it is of tenant ${tenant}, but its credential is of tenant ${principal.tenant} (${principal.rule})`,
    { rule: principal.rule, principal },
  );
}

const CERTIFICATE_AND_TOKEN = 'client certificate and no token';

/** @param challenge whether a caller's token would do */
function nothingShown(
  { serverName }: Evidence,
  hinted: Tenant | undefined,
  role: Principal['role'],
  challenge = false,
): NotAuthorised {
  const wanted = role === 'agent' || challenge ? CERTIFICATE_AND_TOKEN : 'client certificate';
  const of = serverName === undefined || hinted ? '' : `, and its server name ${serverName} is of no tenant`;
  const fix = `see ${role}s in the tenant's file`;
  return new NotAuthorised(`the ${role} has not proven its tenant: it showed no ${wanted}${of}: ${fix}`, {
    challenge,
    ...(hinted && { rule: `${hinted.path}: ${role}s` }),
  });
}

/** @param whose those that are good here are */
function whyUnknown(
  token: string,
  among: Tenant | undefined,
  whose = among ? 'of this tenant' : 'of any tenant',
): string {
  if (among && !among.takesTokens) return `tenant ${among.name} takes no tokens of callers`;
  if (beginsAsPassword(token) && passwordId(token) === undefined)
    return 'it is not as isthmus tenants token printed it: copy it whole';
  return `it is not a token ${whose}`;
}

/** Who shows a token that a tenant's file has the hash of. */
function passwordProof(tenants: Tenants, token: string): Proven | undefined {
  const id = passwordId(token) ?? '';
  const tenant = tenants.byPassword(id);
  const entry = tenant?.passwords.get(id);
  return tenant && entry && isEntryOf(entry, id, token) ? proofOf(tenant, id, entry) : undefined;
}

/** Keeps nothing of the token itself. */
function proofOf(tenant: Tenant, id: string, { name, sha256, at }: Password): Proven {
  const fell = (current: Tenant) => ({ why: 'its token was removed', rule: `${current.path}: callers` });
  return {
    tenant,
    name,
    rule: `${tenant.path}: ${at}`,
    validity: {
      expires: Number.POSITIVE_INFINITY,
      fault(current) {
        const now = current.passwords.get(id);
        return now?.sha256 === sha256 && now.name === name ? undefined : fell(current);
      },
    },
  };
}

/** A unix socket or port of the tenant's own proves a caller, unless callers on that port need certificates or tokens. */
function ownWay(tenant: Tenant, { tenant: own, unixSocket, port }: CallerEvidence): Proven | undefined {
  if (own === undefined) return undefined;
  const indexOf = ({ file }: Tenant) =>
    (file.callers ?? []).findIndex((way) =>
      unixSocket === undefined ? way.port !== undefined && way.port === port : way.unixSocket === unixSocket,
    );
  const open = (each: Tenant) =>
    unixSocket !== undefined || (each.certificates.caller.length === 0 && !each.takesTokens);
  const index = indexOf(tenant);
  const way = tenant.file.callers?.[index];
  if (!way || !open(tenant)) return undefined;
  const rule = (at: number, { path }: Tenant) =>
    `${path}: callers[${at}].${unixSocket === undefined ? 'port' : 'unixSocket'}`;
  return {
    tenant,
    name: way.name ?? (unixSocket === undefined ? `port-${port}` : 'unix-socket'),
    rule: rule(index, tenant),
    validity: {
      expires: Number.POSITIVE_INFINITY,
      fault(current) {
        if (indexOf(current) !== -1 && open(current)) return undefined;
        return { why: 'its way in is no longer listed', rule: `${current.path}: callers` };
      },
    },
  };
}
